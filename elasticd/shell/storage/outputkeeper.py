"""Main's output folder is copied to the other nodes at checkpoints.

Each node fetches from main: which files there are, then those that have changed. What was written
meanwhile is told by a second look. A copy that fails is made at the next checkpoint.
"""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import structlog

from elasticd.core.words.bulk import WantOutput
from elasticd.errors import ElasticdError, OperationError
from elasticd.outputs import Listing, OutputFile, OutputSet
from elasticd.shell.storage.outputcopies import Copy
from elasticd.shell.storage.outputplacing import sweep
from elasticd.shell.storage.outputs import LastWorld, Outputs
from elasticd.shell.tasks import Tasks
from elasticd.types import JobId, NodeId

PREPARE_SECONDS, PLACE_SECONDS = 10.0, 10.0
"""A trainer is not kept waiting for longer, until a copy is here and until its files are in place;
what is missing comes at the next checkpoint."""
NAMES_SECONDS = 1.0
"""A world in which this node is main doesn't wait for longer until files have their names: as long
as that the control plane stands still."""
_NO_NAME = (errno.EILSEQ, errno.ENAMETOOLONG, errno.EINVAL, errno.EEXIST, errno.ENOTDIR,
            errno.EISDIR)  # fmt: skip
"""This disk knows no such name, or has another file under it."""
_TRIES = 2
"""How often a file that is just being written is fetched, in all."""

log = structlog.get_logger(__name__)
T = TypeVar("T")


class OutputKeeper:
    """Keeps this node's copies like main's folders, and puts their files where scripts read.

    Attributes:
        limit_bytes: so much of each job is copied here; 0: nothing.
    """

    def __init__(
        self,
        outputs: Outputs,
        output_folder: Callable[[JobId], Path],
        runs: Callable[[JobId], bool],
        limit_bytes: int,
    ) -> None:
        """``runs``: whether a process of that job is here."""
        self._outputs, self._output_folder, self._runs = outputs, output_folder, runs
        self.limit_bytes = limit_bytes
        self._copying: dict[JobId, asyncio.Lock] = {}
        self._forgotten: set[JobId] = set()
        self._waiting: set[JobId] = set()
        self._tasks = Tasks("copying a job's output")
        self._mine: dict[JobId, int] = {}
        """Of each job the last world here in which this node was main."""
        self._naming: dict[JobId, asyncio.Future[None]] = {}
        """Copies that are being made whole, and their files put in place."""

    def forget(self, job: JobId) -> asyncio.Lock:
        """Copy nothing of a job any more; none is being copied while the lock is held."""
        self._forgotten.add(job)
        return self._lock(job)

    def close(self) -> None:
        self._tasks.stop()

    def follow(self, job: JobId) -> None:
        """Main may have written something that is to be kept: copy it, in the background."""
        if job in self._waiting or not self.limit_bytes:
            return
        self._waiting.add(job)
        self._tasks.start(self._follow(job))

    def go_on(self, job: JobId, own: LastWorld | None) -> None:
        """Put in place what an earlier daemon was kept from, of a job whose trainer was taken over.
        ``own``: the last world that this node has entered."""
        if own is not None and own[1][0] == self._outputs.me:
            self._mine[job] = own[0]  # by now the script may have removed what is not there
        elif self.limit_bytes:
            self._naming[job] = self._tasks.start(self._go_on(job))

    async def _go_on(self, job: JobId) -> None:
        try:
            async with self._lock(job):
                await asyncio.to_thread(sweep, self._output_folder(job))
                await self._place(job, idle=False)
        except (ElasticdError, OSError) as error:
            log.warning("output not put in place", job=job, reason=str(error))

    async def enters(self, job: JobId, counter: int, main: NodeId) -> None:
        """Call this before this node enters a world. Where it is main, its script may write: by
        then the files of a copy are in place that was made whole, and later ones are not put
        there."""
        if main != self._outputs.me:
            return
        self._mine[job] = counter
        naming = self._naming.get(job)
        if naming is None or naming.done():
            return
        if not (await asyncio.wait([naming], timeout=NAMES_SECONDS))[0]:
            log.warning("the output of the main before is not all in place", job=job)

    async def _follow(self, job: JobId) -> None:
        async with self._lock(job):
            self._waiting.discard(job)
            world = await self._outputs.last_world(job)
            if world is None or world[1][0] == self._outputs.me or job in self._forgotten:
                return
            try:
                await self._copy(job, world[1][0], copy=False, world=world[0])
            except (ElasticdError, OSError) as error:
                log.warning("output not copied", job=job, main=world[1][0], reason=str(error))
                if self._outputs.reaches(world[1][0]):
                    self._outputs.tell_not_copied(job, world[1][0], str(error))

    async def prepare(self, job: JobId) -> None:
        """Have the newest copy here, and its files in the job's output folder, before a trainer
        starts that may become main. Raises nothing: a trainer starts all the same."""
        world = await self._outputs.last_world(job)
        if world is None or not self.limit_bytes:
            return
        for what, seconds in ((self._prepare, PREPARE_SECONDS), (self._place_idle, PLACE_SECONDS)):
            try:
                async with asyncio.timeout(seconds), self._lock(job):
                    await what(job, world[1][0])
            except Exception as error:
                text = str(error) or f"it takes longer than {seconds:g} s"
                log.warning("output not brought here", job=job, reason=text)

    async def _prepare(self, job: JobId, main: NodeId) -> None:
        if (
            main == self._outputs.me
            and (await self._outputs.own_set(job, copy=False)).listing.files
        ):
            return
        if main != self._outputs.me and self._outputs.reaches(main):
            await self._copy(job, main, copy=False)
            return
        known = await self._outputs.copies_of(job)
        newest = max(known, key=lambda node: known[node].order, default=None)
        if newest is not None and newest != self._outputs.me:
            await self._copy(job, newest, copy=True)

    async def _place_idle(self, job: JobId, main: NodeId) -> None:
        own = await self._outputs.own_set(job, copy=False)
        if main != self._outputs.me or not own.listing.files:
            await self._place(job, idle=not self._runs(job))

    def _lock(self, job: JobId) -> asyncio.Lock:
        return self._copying.setdefault(job, asyncio.Lock())

    async def _copy(self, job: JobId, node: NodeId, copy: bool, world: int | None = None) -> None:
        """Make the newest copy here like a node's folder, or like its copy of another's. ``world``:
        its files come in place unless this node has been main in that one or a later one."""
        there = await self._outputs.ask_set(node, job, copy, self.limit_bytes)
        have = await asyncio.to_thread(self._outputs.copies.newest, job)
        if not there.listing.files:
            return  # a disk that was lost is no reason to lose this one's
        if have is None or (have.made.source, have.made.listing) != (there.source, there.listing):
            await self._bring(job, node, copy, there, have, world)
        else:
            await self._place(job, idle=False)

    async def _bring(
        self,
        job: JobId,
        node: NodeId,
        copy: bool,
        there: OutputSet,
        have: Copy | None,
        world: int | None,
    ) -> None:
        """Fetch what a copy lacks, and make the next one."""
        older = have.made.listing.by_name() if have and have.made.source == there.source else {}
        staged = await _to_its_end(self._outputs.copies.stage, job)
        try:
            got: dict[str, OutputFile] = {}
            wanted = list(there.listing.files)
            for _ in range(_TRIES):
                came = {file.name for file in wanted if await self._one(job, node, copy, file,
                        staged, have if older.get(file.name) == file else None)}  # fmt: skip
                after = (
                    await self._outputs.ask_set(node, job, copy, self.limit_bytes)
                ).listing.by_name()
                torn = []
                for file in wanted:
                    now = after.get(file.name)
                    if file.name in came and now is not None and (now == file or file.grown(now)):
                        got[file.name] = file
                    elif now is not None:
                        torn.append(now)
                wanted = torn
                if not torn:
                    break
            for file in wanted:  # it is being written all the time: what was there before stays
                if have is not None and file.name in older:
                    await asyncio.to_thread(_link, have.files / file.name, staged / file.name)
                    got[file.name] = older[file.name]
            files = tuple(got[name] for name in sorted(got))
            made = OutputSet(
                there.source, there.generation, there.made, Listing(files, there.listing.skipped)
            )
            await self._put(job, staged, made, world, commit=True)
        except BaseException:
            await _to_its_end(self._outputs.copies.drop, staged)
            raise

    async def _one(
        self,
        job: JobId,
        node: NodeId,
        copy: bool,
        file: OutputFile,
        staged: Path,
        have: Copy | None,
    ) -> bool:
        """Have one file staged; False: it is another by now."""
        target = staged / file.name
        if have is not None:
            await asyncio.to_thread(_link, have.files / file.name, target)
            return True
        try:
            return await self._outputs.fetch(node, WantOutput(job, file.name, copy), file, target)
        except OperationError:
            if not self._outputs.reaches(node):
                raise
            return False  # it was removed, cut, or has grown much while it came
        except OSError as error:
            if error.errno not in _NO_NAME:
                raise
            return False

    async def _place(self, job: JobId, *, idle: bool, world: int | None = None) -> None:
        """Have the newest copy's files in the job's output folder."""
        copy = await asyncio.to_thread(self._outputs.copies.newest, job)
        if copy is not None:
            await self._put(job, copy.files, copy.made, world, idle=idle)

    async def _put(
        self,
        job: JobId,
        files: Path,
        made: OutputSet,
        world: int | None,
        *,
        idle: bool = False,
        commit: bool = False,
    ) -> None:
        """Put a copy's files in place. ``commit``: it is staged, and becomes the newest one in the
        same step: who is main next has all that is in its newest copy. That step waits for no
        disk, so that a world need not."""
        copies, output, stop = self._outputs.copies, self._output_folder(job), threading.Event()
        placing = copies.placing(made, job, output, stop)

        def to_names(place: bool) -> None:
            if commit:
                copies.name(files)
            if place:
                placing.finish()

        if commit:
            await _to_its_end(copies.seal, files, made)
        failure: OSError | None = None
        try:
            try:
                await _to_its_end(partial(placing.begin, files, idle=idle), stop=stop)
            except OSError as error:
                failure = error  # the copy is kept all the same
            except asyncio.CancelledError:
                if commit:  # what was fetched is kept; it takes one more rename
                    await _to_its_end(to_names, False)
                raise
            place = failure is None and (world is None or self._mine.get(job, -1) < world)
            naming = asyncio.ensure_future(asyncio.to_thread(to_names, place))
            self._naming[job] = naming
            await _ended(naming, stop)
        finally:
            await _to_its_end(placing.drop)
        if commit:
            await _to_its_end(copies.settle, job, files, made)
        if failure is not None:
            raise failure


async def _to_its_end(work: Callable[..., T], *args: Any, stop: threading.Event | None = None) -> T:
    """Do that in a thread, which has ended on return, also when this is cancelled: then it is told
    to ``stop``."""
    return await _ended(asyncio.ensure_future(asyncio.to_thread(work, *args)), stop)


async def _ended(task: asyncio.Future[T], stop: threading.Event | None) -> T:
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if stop is not None:
            stop.set()
        await asyncio.wait([task])
        raise


def _link(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    os.link(source, target)
