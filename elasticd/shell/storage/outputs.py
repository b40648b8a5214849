"""A node's output folders and its copies of main's: what others ask of them, and how it asks."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, assert_never

from elasticd.checkpoints.medium import order_file
from elasticd.core.words.bulk import (
    CopyOutput,
    OfOutputs,
    WantOutput,
    WantOutputIndex,
    WantOutputList,
)
from elasticd.core.words.records import JobRecord
from elasticd.errors import ElasticdError, OperationError
from elasticd.outputs import (
    MOST_FILES,
    OutputFile,
    OutputSet,
    list_files,
    open_file,
    open_index,
    within,
)
from elasticd.shell.children.files import ChildFiles
from elasticd.shell.clock import unix_seconds
from elasticd.shell.network.neighbours import Neighbours
from elasticd.shell.network.stream import aside
from elasticd.shell.rarely import Rarely
from elasticd.shell.storage.copies import Tell
from elasticd.shell.storage.eventlasting import WORLD
from elasticd.shell.storage.namelessfile import file_of, filled, nameless_file
from elasticd.shell.storage.outputcopies import OutputCopies, decode_set, encode_set
from elasticd.shell.storage.outputsteps import with_steps
from elasticd.types import JobId, NodeId

ASK_SECONDS = 10.0
"""Of a node that answers at all, with what it has."""
_MOST_GROWTH_BYTES = 64 << 20
"""Of a file between its listing and its fetch; one that has grown further is another file."""

LastWorld = tuple[int, tuple[NodeId, ...]]
"""The counter of a job's last world that is known here, and its members; the first is main."""


def last_world(
    events: Iterable[Mapping[str, Any]], own: LastWorld | None, before: int | None = None
) -> LastWorld | None:
    """By what everybody was told, and the world that this node remembers. ``before``: of those with
    a lower counter.

    That in which the job has finished, if it has: where a network was cut, the other half may have
    formed more worlds meanwhile, and not have come so far.
    """
    known, finished = [own] if own is not None else [], set[int]()
    for event in events:
        generation, members = event.get("generation"), event.get("members")
        if not isinstance(generation, int):
            continue
        if event.get("kind") == "job_finished":
            finished.add(generation)
        elif event.get("kind") == WORLD and members:
            known.append((generation, tuple(members)))
    if before is not None:
        known = [world for world in known if world[0] < before]
    return max(known, key=lambda world: (world[0] in finished, world), default=None)


class Outputs:
    """What there is, and how it is fetched."""

    def __init__(
        self,
        files: ChildFiles,
        neighbours: Neighbours,
        record_of: Callable[[JobId], JobRecord],
        last_world: Callable[[JobId, int | None], Awaitable[LastWorld | None]],
        tell: Tell,
    ) -> None:
        self._files, self._neighbours, self._record_of = files, neighbours, record_of
        self._last_world, self._tell = last_world, tell
        self.copies = OutputCopies(files.output_copies())
        self.follow: Callable[[JobId], None] = lambda job: None
        """Copies main's folder soon; whoever keeps copies puts it in place."""
        self.settled: dict[JobId, int] = {}
        """Up to which world the files here are right: who becomes main has older ones until it has
        taken over those of main before."""
        self._told: dict[JobId, tuple[Rarely, set[str]]] = {}
        """Of which files there was an event."""
        self._told_not_copied: dict[JobId, Rarely] = {}

    @property
    def me(self) -> NodeId:
        return self._neighbours.me

    async def last_world(self, job: JobId, before: int | None = None) -> LastWorld | None:
        """The job's newest world; ``before``: of those with a lower counter."""
        return await self._last_world(job, before)

    def reaches(self, node: NodeId) -> bool:
        """Whether it answers now."""
        return node == self.me or self._neighbours.reaches(node)

    # --- asking -----------------------------------------------------------------------------------

    async def ask_set(
        self,
        node: NodeId,
        job: JobId,
        copy: bool,
        limit_bytes: int | None = None,
        *,
        steps: bool = False,
    ) -> OutputSet:
        """What a node has. ``steps``: with which steps files of ``run.open`` have.

        Raises:
            OperationError: it can't be asked, or has none.
            ProtocolError: what it says can't be.
        """
        if node == self.me:
            return await self.own_set(job, copy, steps)
        wanted = WantOutputList(job, copy, limit_bytes, steps)
        return decode_set(await filled(partial(self._neighbours.fetch, node, wanted)))

    async def fetch(self, node: NodeId, wanted: WantOutput, file: OutputFile, target: Path) -> bool:
        """Write another node's file to ``target``, as long as it was listed; False: it is shorter
        now.

        Raises:
            OperationError: it can't be had.
        """
        opened: list[int] = []
        try:
            await aside(lambda: opened.append(_made(target)))
            (fd,) = opened
            most = file.bytes + _MOST_GROWTH_BYTES
            came = await self._neighbours.fetch(node, wanted, fd, most)
            await aside(partial(_complete, fd, min(came, file.bytes), file.mtime_ns))
        finally:
            for fd in opened:
                os.close(fd)
        return came >= file.bytes

    async def index(self, node: NodeId, job: JobId, name: str) -> bytes:
        """Which steps wrote what of a file of ``run.open`` in a node's own folder.

        Raises:
            OperationError: it can't be had.
        """
        wanted = WantOutputIndex(job, name)
        if node != self.me:
            return await filled(partial(self._neighbours.fetch, node, wanted))
        return await asyncio.to_thread(_content, await self.serve(wanted))

    async def have_copied(self, job: JobId) -> None:
        """Have all nodes that answer copy what is in the folder of this one, which is main."""

        async def ask(node: NodeId) -> None:
            # One that goes away, or is of an earlier version, copies at the next checkpoint.
            with contextlib.suppress(ElasticdError, OSError, TimeoutError):
                async with asyncio.timeout(ASK_SECONDS / 2):
                    await filled(partial(self._neighbours.fetch, node, CopyOutput(job)))

        await asyncio.gather(*(ask(node) for node in self._neighbours.connected()))

    async def copies_of(
        self, job: JobId, nodes: Sequence[NodeId] | None = None
    ) -> dict[NodeId, OutputSet]:
        """The copies of main's folder on all nodes that answer, or on those of ``nodes``."""
        return await self._of_all(job, copy=True, nodes=nodes)

    async def own_of(self, job: JobId) -> dict[NodeId, OutputSet]:
        """What the nodes that answer have in their own folders, with steps."""
        return await self._of_all(job, copy=False)

    async def _of_all(
        self, job: JobId, copy: bool, nodes: Sequence[NodeId] | None = None
    ) -> dict[NodeId, OutputSet]:
        async def ask(node: NodeId) -> OutputSet | None:
            try:
                async with asyncio.timeout(ASK_SECONDS / 2):
                    return await self.ask_set(node, job, copy, steps=not copy)
            except (ElasticdError, OSError):
                return None

        asked = [self.me, *self._neighbours.connected()]
        if nodes is not None:
            asked = [node for node in asked if node in nodes]
        said = await asyncio.gather(*(ask(node) for node in asked))
        return {node: one for node, one in zip(asked, said, strict=True) if one is not None}

    # --- serving ----------------------------------------------------------------------------------

    def ended(self, job: JobId) -> bool:
        """Raises OperationError: there is no such job."""
        return self._record_of(job).ended

    def last_step(self, job: JobId) -> int | None:
        """With which step the job has finished. Raises OperationError: there is no such job."""
        record = self._record_of(job)
        return record.step if record.state == "finished" else None

    async def own_set(self, job: JobId, copy: bool, steps: bool = False) -> OutputSet:
        """What this node has. Raises OperationError: there is no copy here."""
        self._record_of(job)  # a name that came from elsewhere
        if copy:
            found = await asyncio.to_thread(self.copies.newest, job)
            if found is None:
                raise OperationError(f"{self.me} has no copy of the output of {job}")
            return found.made
        folder = self._files.output_folder(job)
        listing = await asyncio.to_thread(list_files, folder)
        if steps:
            listing = await asyncio.to_thread(with_steps, folder, listing)
        world = await self.last_world(job)
        generation = world[0] if world else 0
        generation = min(generation, self.settled.get(job, generation))
        return OutputSet(self.me, generation, unix_seconds(), listing)

    def own_folder(self, job: JobId, copy: bool) -> Path:
        """Where those files are. Raises as :meth:`own_set`."""
        self._record_of(job)
        if not copy:
            return self._files.output_folder(job)
        found = self.copies.newest(job)
        if found is None:
            raise OperationError(f"{self.me} has no copy of the output of {job}")
        return found.files

    async def serve(self, wanted: OfOutputs) -> int:
        """A descriptor of what a peer asks for; the caller closes it.

        Raises:
            OperationError: it isn't here.
            ProtocolError: it can't be anywhere.
        """
        try:
            match wanted:
                case WantOutputList(job, copy, limit_bytes, steps):
                    made = await self.own_set(job, copy, steps)
                    if limit_bytes is not None:
                        made = self._within(job, made, limit_bytes)
                    return file_of(encode_set(made))
                case WantOutput(job, name, copy):
                    return await asyncio.to_thread(self._open, job, name, copy)
                case WantOutputIndex(job, name):
                    folder = self.own_folder(job, copy=False)
                    return await asyncio.to_thread(open_index, folder, name)
                case CopyOutput(job):
                    self._record_of(job)  # a name that came from elsewhere
                    self.follow(job)
                    return nameless_file()
                case _:
                    assert_never(wanted)
        except OSError as error:
            raise OperationError(str(error)) from None

    def _open(self, job: JobId, name: str, copy: bool) -> int:
        return open_file(self.own_folder(job, copy), name)

    def tell_begins_without(self, job: JobId, main: NodeId, why: str) -> None:
        """Write an event: this node is main, and lacks something that main before has written."""
        self._tell(
            "output_not_copied",
            job,
            f"{self.me}, which is main now, goes on without the newest that {main}, which was main"
            f" before, has written: {why}",
            {"main": main},
        )

    def tell_not_copied(self, job: JobId, main: NodeId, why: str) -> None:
        """Write an event, unless there was one lately: nothing of main's could be copied here."""
        if self._told_not_copied.setdefault(job, Rarely()).due():
            self._tell(
                "output_not_copied",
                job,
                f"what {main}, which is main, has written is not copied to {self.me}: {why}",
                {"main": main},
            )

    def _within(self, job: JobId, made: OutputSet, limit_bytes: int) -> OutputSet:
        listing = within(made.listing, limit_bytes)
        rarely, before = self._told.setdefault(job, (Rarely(), set()))
        new = sorted(set(listing.skipped) - before)
        if new and rarely.due():
            before.update(new)
            names = ", ".join(new[:3]) + (" …" if len(new) > 3 else "")
            self._tell(
                "output_skipped",
                job,
                f"{names}: not copied to other nodes. They keep {limit_bytes} bytes of a job's"
                " output (output_bytes in elasticd.toml), of large files the newest, and"
                f" {MOST_FILES} files, and no names that differ in case only, are too long, or are"
                " the library's own",
                {"files": new[:100]},
            )
        return replace(made, listing=listing)


def _made(path: Path) -> int:
    """A new file there, open."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)  # it may be a link into the copy that is kept
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)


def _complete(fd: int, size_bytes: int, mtime_ns: int) -> None:
    os.ftruncate(fd, size_bytes)
    os.utime(fd, ns=(mtime_ns, mtime_ns))
    order_file(fd)  # their folder is synced behind them


def _content(fd: int) -> bytes:
    with open(fd, "rb") as file:
        return file.read()
