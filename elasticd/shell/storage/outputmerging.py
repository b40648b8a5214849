"""Files of ``run.open`` with the lines of all steps that any living node has.

Whoever has lines of the job counts, whether its rank is in the last world or not. Where one node's
file has all of them it is taken as it is; else one is put together, which needs each node's index.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path

from elasticd.core.words.bulk import WantOutput
from elasticd.errors import ElasticdError, OperationError
from elasticd.outputs import Listing, OutputFile, OutputSet, open_file, shown
from elasticd.shell.storage.outputs import Outputs
from elasticd.shell.storage.outputsteps import Found, may_lack, together, upto
from elasticd.types import JobId, NodeId

_SECONDS = 20.0
"""A client is kept waiting for no longer; what is missing then is as main has it."""


@dataclass(frozen=True, slots=True)
class _Lines:
    """Of one node's file: where each step's text ends, and the text."""

    records: Sequence[tuple[int, int]]
    text: bytes

    def to(self, ends: int) -> list[tuple[int, int]]:
        """The steps up to that one."""
        return list(takewhile(lambda record: record[0] <= ends, self.records))

    def behind(self, ends: int) -> bytes | None:
        """What no step has written; None: it may be of steps that are missing here."""
        if not self.records or self.records[-1][0] != ends:
            return None
        return self.text[self.records[-1][1] :]


@dataclass
class OutputMerging:
    """Of the files of one job: those in the folder of ``main``, or in a ``copy`` of that.

    Attributes:
        scratch: the folder for what is put together.
        elsewhere: by name, files that another node has in its own folder.
        here: by name, those that were put together.
        indices: the same files' indices.
        takes: files that another node has whole are brought here, too.
    """

    outputs: Outputs
    job: JobId
    main: NodeId
    copy: bool
    scratch: Path
    elsewhere: dict[str, NodeId] = field(default_factory=dict)
    here: dict[str, Path] = field(default_factory=dict)
    indices: dict[str, bytes] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    takes: bool = False

    async def complete(self, made: OutputSet) -> Listing:
        """The files, with what stands in for those that lack steps."""
        listing, last = made.listing, self.outputs.last_step(self.job)
        managed = [file for file in listing.files if file.managed]
        if not managed or not (self.copy or may_lack(listing, last)):
            return listing
        files = listing.by_name()
        others = await self._others()
        try:
            async with asyncio.timeout(_SECONDS):
                for file in managed:
                    found = await self._complete(file, others, last)
                    files[file.name] = file if found is None else found
        except TimeoutError:
            self.notes.append(
                f"to find all lines that {self.main}'s files lack takes longer than {_SECONDS:g} s"
            )
        return Listing(tuple(files[name] for name in sorted(files)), listing.skipped)

    async def _others(self) -> list[tuple[NodeId, Mapping[str, OutputFile]]]:
        """Who has what in its own folder; members of the last world first, by rank."""
        own, world = await self.outputs.own_of(self.job), await self.outputs.last_world(self.job)
        ranks = {node: rank for rank, node in enumerate(world[1] if world else ())}
        order = sorted(own, key=lambda node: (ranks.get(node, len(ranks)), node))
        return [(n, own[n].listing.by_name()) for n in order if self.copy or n != self.main]

    async def _complete(
        self,
        file: OutputFile,
        others: Sequence[tuple[NodeId, Mapping[str, OutputFile]]],
        last: int | None,
    ) -> OutputFile | None:
        """What stands in for a file; None: nothing."""
        have = [(node, files[file.name]) for node, files in others if file.name in files]
        have = [(node, each) for node, each in have if each.managed and each.steps]
        if not self.copy:
            have = [(self.main, file), *have] if file.steps else []
        if not have:
            return None
        ends = max(upto(each, last) for _, each in (have if self.copy else have[:1]))
        chosen = together(have, ends)
        if len(chosen) > 1 or (self.takes and chosen[0][1] is not file):
            return await self._put_together(file, chosen, ends)
        node, found = chosen[0]
        if found is file or (self.copy and found.bytes < file.bytes):
            return None
        self.elsewhere[file.name] = node
        self.notes.append(f"{shown(file.name)} is {node}'s own, since {self.main}'s lacks steps")
        return found

    async def _put_together(self, file: OutputFile, chosen: Found, ends: int) -> OutputFile | None:
        read = {node: await self._read(node, each) for node, each in chosen}
        lines = {node: each for node, each in read.items() if each is not None}
        if len(lines) < min(len(chosen), 2):
            return None
        content, index = await asyncio.to_thread(_content, list(lines.values()), ends)
        if self.copy and len(content) < file.bytes:
            return None
        path = self.scratch / f"put-together-{len(self.here)}"
        await asyncio.to_thread(path.write_bytes, content)
        self.here[file.name], self.indices[file.name] = path, index
        whose = " and ".join(f"{node}'s" for node in lines)
        self.notes.append(f"{shown(file.name)} is put together of {whose}: none has all steps")
        mtime_ns = max(each.mtime_ns for _, each in chosen)
        return OutputFile(file.name, len(content), mtime_ns, 0, managed=True)

    async def _read(self, node: NodeId, file: OutputFile) -> _Lines | None:
        """None: it can't be had as it was at one time."""
        try:
            before = await self.outputs.index(node, self.job, file.name)
            text = await self._text(node, file)
            after = await self.outputs.index(node, self.job, file.name)
        except (ElasticdError, OSError):
            return None
        return await asyncio.to_thread(_lines, before, after, text)

    async def _text(self, node: NodeId, file: OutputFile) -> bytes:
        """Raises OperationError, OSError: it can't be had."""
        if node == self.outputs.me:
            folder = self.outputs.own_folder(self.job, copy=False)
            return await asyncio.to_thread(_beginning, folder, file)
        path, wanted = self.scratch / "part", WantOutput(self.job, file.name)
        if not await self.outputs.fetch(node, wanted, file, path):
            raise OperationError(f"{node}'s {shown(file.name)} is shorter now")
        return await asyncio.to_thread(path.read_bytes)


def _beginning(folder: Path, file: OutputFile) -> bytes:
    with open(open_file(folder, file.name), "rb") as own:
        return own.read(file.bytes)


def _lines(before: bytes, after: bytes, text: bytes) -> _Lines | None:
    """Of a file whose index was read before and after its text. What is written meanwhile follows;
    if it was cut, or made like another's, nothing is known of it."""
    # A daemon needs numpy for this alone.
    from elasticd.stepindex import MAGIC, StepIndex

    if not (before.startswith(MAGIC) and after.startswith(MAGIC)):
        return None
    index = StepIndex.parsed(before[len(MAGIC) :], len(text))
    settled = len(MAGIC) + index.settled
    if before[:settled] != after[:settled]:
        return None
    return _Lines(list(index.records()), text)


def _content(files: Sequence[_Lines], ends: int) -> tuple[bytes, bytes]:
    """Each step's lines of the first that has them, then what no step has written; and the
    index."""
    from elasticd.stepindex import MAGIC, StepIndex, merged

    records, text = merged([(each.to(ends), each.text) for each in files])
    behind = (each.behind(ends) for each in files)
    content = text + next((tail for tail in behind if tail is not None), b"")
    return content, MAGIC + bytes(StepIndex.of(records).code)
