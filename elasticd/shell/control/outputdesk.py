"""The files of main's output folder, handed to the command line."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from elasticd.core.words.bulk import WantOutput
from elasticd.core.words.requests.looking import OpenOutputs
from elasticd.errors import ElasticdError, OperationError, RotError
from elasticd.outputs import OutputFile, OutputSet
from elasticd.shell.control.server import Handlers, Stream, on
from elasticd.shell.storage.outputmending import find_sound, said_lost
from elasticd.shell.storage.outputmerging import OutputMerging
from elasticd.shell.storage.outputs import ASK_SECONDS, Outputs
from elasticd.shell.storage.scratch import Scratch
from elasticd.types import JobId, NodeId

_TELL_SECONDS = 1.0
"""How often the client hears how much of a file has come."""

_MOST_SKIPPED = 1000
"""Files that are named of those which no other node has; of the rest their number is told."""


@dataclass(frozen=True, slots=True)
class _Source:
    """Whose files they are, and who has them."""

    node: NodeId
    copy: bool
    made: OutputSet
    note: str = ""
    elsewhere: Mapping[str, NodeId] = field(default_factory=dict)
    """By name: files that come from another node's own folder."""
    here: Mapping[str, Path] = field(default_factory=dict)
    """By name: files that were put together."""


@dataclass(frozen=True, slots=True)
class OutputDesk:
    """Handles the ``outputs`` request of docs/protocols.md §3."""

    outputs: Outputs
    scratch: Scratch

    def handlers(self) -> Handlers:
        return on(OpenOutputs, self.open)

    async def open(self, request: OpenOutputs, stream: Stream) -> None:
        """A frame that says whose files come, then one for each; the client answers each of these
        when it has read the file."""
        job = request.job
        with self.scratch.folder() as scratch:
            await self._send(job, await self._completed(job, await self._source(job), scratch),
                             scratch, stream)  # fmt: skip

    async def _send(self, job: JobId, source: _Source, scratch: Path, stream: Stream) -> None:
        made = source.made
        await stream.send({
            "job": job,
            "node": source.node,
            "main": made.source,
            "copy": source.copy,
            "made": made.made,
            "files": len(made.listing.files),
            "bytes": made.listing.bytes,
            "skipped": list(made.listing.skipped[:_MOST_SKIPPED]),
            "skipped_files": len(made.listing.skipped),
            "note": source.note,
        })  # fmt: skip
        for file in made.listing.files:
            said: dict[str, Any] = {"name": file.name, "bytes": file.bytes, "path": None}
            try:
                path = await self._path(job, source, file, scratch / "file", stream)
            except RotError as error:  # the others are to come all the same
                said["why"] = str(error)
            else:
                said["path"] = None if path is None else str(path)
            await stream.send(said)
            # A client that dies hangs up, which cancels this handler.
            await stream.receive(seconds=None)

    async def _source(self, job: JobId) -> _Source:
        """Main's own folder if it can be had, else the newest copy, else what another rank has."""
        outputs = self.outputs
        none = "no output" if outputs.ended(job) else "no output yet"
        world = await outputs.last_world(job)
        if world is None:
            raise OperationError(f"{job} has {none}: it has not trained")
        main, *others = world[1]
        why = await self._live(main, job)
        if isinstance(why, OutputSet) and why.listing.files:
            return _Source(main, False, why)
        copies = await outputs.copies_of(job)
        if copies:
            node = max(copies, key=lambda node: copies[node].order)
            note = (
                f"{main}, which was main, did not give its files ({why}); later ones may be there"
                if isinstance(why, str)
                else ""
            )
            return _Source(node, True, copies[node], note)
        if isinstance(why, OutputSet):
            raise OperationError(
                f"{job} has {none}: its script has written no file to run.output_dir"
            )
        note = (
            f"{main}, which was main, has not answered ({why}), and there is no copy of its files"
        )
        for node in others:
            found = await self._live(node, job)
            if isinstance(found, OutputSet) and found.listing.files:
                return _Source(node, False, found, f"{note}; these are those of {node}'s own rank")
        raise OperationError(f"{note}; start its daemon, then run this again")

    async def _completed(self, job: JobId, source: _Source, scratch: Path) -> _Source:
        """With the lines of all steps that a living node has in files of ``run.open``."""
        made, outputs = source.made, self.outputs
        main = made.source if source.copy else source.node
        merging = OutputMerging(outputs, job, main, source.copy, scratch)
        listing = await merging.complete(made)
        return replace(
            source,
            made=replace(made, listing=listing),
            note="; ".join(filter(None, [source.note, *merging.notes])),
            elsewhere=merging.elsewhere,
            here=merging.here,
        )

    async def _live(self, node: NodeId, job: JobId) -> OutputSet | str:
        """What is in a node's folder, or why that isn't known."""
        try:
            async with asyncio.timeout(ASK_SECONDS):
                return await self.outputs.ask_set(node, job, copy=False, steps=True)
        except (ElasticdError, OSError) as error:
            return str(error) or f"no answer in {ASK_SECONDS:g} s"

    async def _path(
        self, job: JobId, source: _Source, file: OutputFile, scratch: Path, stream: Stream
    ) -> Path | None:
        """A file of this machine with the content; None: it has changed since it was listed.

        Raises:
            OperationError: who has it went away.
            RotError: nobody has it as it was.
        """
        bringing = asyncio.ensure_future(self._bring(job, source, file, scratch))
        try:
            while not (await asyncio.wait([bringing], timeout=_TELL_SECONDS))[0]:
                received = await asyncio.to_thread(_size, scratch)
                await stream.send({"name": file.name, "received": received})
            return bringing.result()
        finally:
            bringing.cancel()

    async def _bring(
        self, job: JobId, source: _Source, file: OutputFile, scratch: Path
    ) -> Path | None:
        outputs, node = self.outputs, source.elsewhere.get(file.name, source.node)
        if (path := source.here.get(file.name)) is not None:
            return path
        copy = source.copy and file.name not in source.elsewhere
        if node == outputs.me:
            folder = await asyncio.to_thread(outputs.own_folder, job, copy)
            path = folder / file.name
        else:
            path = await self._fetched(node, WantOutput(job, file.name, copy), file, scratch)
        if not copy:
            return path
        if path is not None and await asyncio.to_thread(source.made.has, file.name, path):
            return path
        now = await outputs.ask_set(node, job, copy=True)
        noted = source.made.digests.get(file.name)
        if noted is None or now.digests.get(file.name) != noted:
            return None  # another copy was made meanwhile
        if not await find_sound(outputs, job, source.made, file, scratch):
            raise RotError(said_lost(file))
        return scratch

    async def _fetched(
        self, node: NodeId, wanted: WantOutput, file: OutputFile, scratch: Path
    ) -> Path | None:
        try:
            return scratch if await self.outputs.fetch(node, wanted, file, scratch) else None
        except OperationError as error:
            if self.outputs.reaches(node):
                return None
            raise OperationError(
                f"{node} went away while its files were read ({error}); run this again"
            ) from None


def _size(path: Path) -> int:
    with contextlib.suppress(FileNotFoundError):
        return path.stat().st_size
    return 0
