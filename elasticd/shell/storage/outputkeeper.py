"""Main's output folder is copied to the other nodes at checkpoints.

Each node fetches from main: which files there are, then those that have changed. A copy that fails
is made at the next checkpoint. Who becomes main fetches what another node's copy has of later.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import structlog

from elasticd.errors import ElasticdError
from elasticd.outputs import OutputFile, OutputSet
from elasticd.outputsigns import Coming, note_given
from elasticd.shell.storage.outputbringing import Bringing
from elasticd.shell.storage.outputending import EndedOutputs
from elasticd.shell.storage.outputlooking import OutputLooking
from elasticd.shell.storage.outputmending import mend
from elasticd.shell.storage.outputplacing import sweep
from elasticd.shell.storage.outputs import LastWorld, Outputs
from elasticd.shell.storage.outputwhole import OutputWhole
from elasticd.shell.tasks import Tasks
from elasticd.types import JobId, NodeId

PREPARE_SECONDS, PLACE_SECONDS = 10.0, 10.0
"""A trainer is not kept waiting for longer, until a copy is here and until its files are in place;
what is missing comes at the next checkpoint."""
TAKE_OVER_SECONDS, MAIN_SECONDS = 5.0, 3.0
"""Who becomes main is not kept waiting for longer, and not for longer of that by who was main
before: then others are asked for their copies."""
NAMES_SECONDS = 1.0
"""A world in which this node is main doesn't wait for longer until files have their names: as long
as that the control plane stands still."""
log = structlog.get_logger(__name__)
T = TypeVar("T")


class OutputKeeper:
    """Keeps this node's copies like main's folders, and puts their files where scripts read.

    Attributes:
        limit_bytes: so much of each job is copied here; 0: nothing.
        ended: does what is left to do when jobs have ended.
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
        self._copying = WeakValueDictionary[JobId, asyncio.Lock]()
        self._forgotten, self._waiting = set[JobId](), set[JobId]()
        self._tasks = Tasks("copying a job's output")
        self._fetching: dict[JobId, asyncio.Task[None]] = {}
        """Copies of main's folder that are on their way."""
        self._entered: dict[JobId, LastWorld] = {}
        """Of each job the last world that this node has entered."""
        self._mine: dict[JobId, int] = {}
        """Of each job the last world here in which this node was main."""
        self._naming: dict[JobId, asyncio.Future[None]] = {}
        """Copies that are being made whole, and their files put in place."""
        self._looking = OutputLooking(outputs, output_folder, runs, self._entered, self._follow,
                                      self._tasks)  # fmt: skip
        self.whole = OutputWhole(outputs, output_folder, runs, self._lock)
        self.ended = EndedOutputs((self._follow, self.whole.make), runs, self._tasks)

    def forget(self, job: JobId) -> asyncio.Lock:
        """Copy nothing of a job any more; none is being copied while the lock is held."""
        self._forgotten.add(job)
        self._entered.pop(job, None)
        self._looking.forget(job)
        return self._lock(job)

    def close(self) -> None:
        self._tasks.stop()

    def follow(self, job: JobId) -> None:
        """Main may have written something that is to be kept: copy it, in the background."""
        if job not in self._waiting and self.limit_bytes:
            self._waiting.add(job)
            self._tasks.start(self._follow(job))

    async def rounds(self) -> None:
        """Do at once what scripts here ask for."""
        await self._looking.rounds()

    def go_on(self, job: JobId, own: LastWorld | None) -> None:
        """Put in place what an earlier daemon was kept from; the trainer of ``own`` lives."""
        if own is not None:
            self._entered[job] = own
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

    async def enters(self, job: JobId, counter: int, members: Sequence[NodeId]) -> None:
        """Call this before this node enters a world. Where it is main, its script may write: by
        then the files of a copy are in place that was made whole, and later ones are not put
        there. If another was main before, the script waits until what that one has written is
        here."""
        before, self._entered[job] = self._entered.get(job), (counter, tuple(members))
        self._outputs.settled[job] = counter
        if members[0] != self._outputs.me:
            return
        was_main = before is not None and before[1][0] == members[0] and before[0] + 1 == counter
        making: asyncio.Future[Coming] | None = None
        if self.limit_bytes and not was_main:
            self._outputs.settled[job] = counter - 1
            making = asyncio.ensure_future(asyncio.to_thread(Coming, self._output_folder(job)))
            await asyncio.wait([making], timeout=NAMES_SECONDS)  # not for a disk that hangs
        self._mine[job] = counter  # a copy that is named from now on is not in place
        if (naming := self._naming.get(job)) is not None and not naming.done():
            ended, _ = await asyncio.wait([naming], timeout=NAMES_SECONDS)
            if not ended:
                log.warning("the output of the main before is not all in place", job=job)
        if making is not None:
            self._tasks.start(self._take_over(job, counter, members, before, making))

    async def _follow(self, job: JobId) -> None:
        async with self._lock(job):
            self._waiting.discard(job)
            world = await self._outputs.last_world(job)
            unwanted = job in self._forgotten or not self.limit_bytes
            if unwanted or world is None or world[1][0] == self._outputs.me:
                return
            task = asyncio.current_task()
            assert task is not None
            self._fetching[job] = task
            try:
                since = self._entered.get(job, world)[0]
                await self._copy(job, world[1][0], copy=False, world=world[0], since=since)
            except (ElasticdError, OSError) as error:
                log.warning("output not copied", job=job, main=world[1][0], reason=str(error))
                if self._outputs.reaches(world[1][0]):
                    self._outputs.tell_not_copied(job, world[1][0], str(error))
            finally:
                if self._fetching.get(job) is task:
                    del self._fetching[job]

    async def prepare(self, job: JobId) -> None:
        """Have the newest copy here, and its files in the job's output folder, before a trainer
        starts that may become main. Raises nothing: a trainer starts all the same."""
        world = await self._outputs.last_world(job)
        if world is None or not self.limit_bytes:
            return
        for what, seconds in ((self._newest, PREPARE_SECONDS), (self._place_idle, PLACE_SECONDS)):
            try:
                async with asyncio.timeout(seconds), self._lock(job):
                    await what(job, world[1][0])
            except Exception as error:
                text = str(error) or f"it takes longer than {seconds:g} s"
                log.warning("output not brought here", job=job, reason=text)

    async def _newest(
        self,
        job: JobId,
        main: NodeId,
        nodes: Sequence[NodeId] | None = None,
        upto: int | None = None,
    ) -> None:
        """Have the newest here that is known of main's folder: what it has itself if it can be
        asked, else the newest copy, of all nodes or of ``nodes``. Raises ElasticdError, OSError:
        who has it does not give it."""
        failure: Exception | None = None
        if main == self._outputs.me:
            if (await self._outputs.own_set(job, copy=False)).listing.files:
                return
        elif self._outputs.reaches(main):
            try:
                async with asyncio.timeout(MAIN_SECONDS):
                    if await self._copy(job, main, copy=False, upto=upto, since=upto):
                        return
            except (ElasticdError, OSError) as error:
                failure = error
        known = await self._outputs.copies_of(job, nodes)
        for node in _newer(known, self._outputs.me):
            try:
                await self._copy(job, node, copy=True, upto=upto, since=upto)
                return
            except (ElasticdError, OSError) as error:
                failure = error
        if failure is not None:
            raise failure

    async def _take_over(
        self,
        job: JobId,
        counter: int,
        members: Sequence[NodeId],
        before: LastWorld | None,
        making: asyncio.Future[Coming],
    ) -> None:
        """This node is main from world ``counter`` on: have here what is known of the files of who
        was main before. Its script waits for that. ``before``: what it was in itself."""
        try:
            sign = await making
        except OSError as error:  # so the script would not wait
            log.warning("output not taken over", job=job, reason=str(error))
            return
        main = None
        try:
            told = await self._outputs.last_world(job, counter)
            world = max((each for each in (told, before) if each is not None), default=None)
            if world is None or job in self._forgotten:
                return
            main = world[1][0]
            if main != self._outputs.me and job in self._fetching:
                self._fetching[job].cancel()  # from who may be gone
            if away := self._outputs.me not in world[1]:
                await asyncio.to_thread(note_given, self._output_folder(job))  # it is older
            async with asyncio.timeout(TAKE_OVER_SECONDS), self._lock(job):
                await self._newest(job, main, members, world[0])
            if self._entered.get(job, world)[0] == counter:
                self._outputs.settled[job] = counter
                if away:  # who has looked meanwhile has older ones
                    self._tasks.start(self._outputs.have_copied(job))
        except Exception as error:
            text = str(error) or f"it takes longer than {TAKE_OVER_SECONDS:g} s"
            log.warning("output not taken over", job=job, main=main, reason=text)
            if main is not None:
                self._outputs.tell_begins_without(job, main, text)
        finally:
            # Also of one that is cancelled meanwhile: a script waits for as long as it is held.
            await asyncio.shield(asyncio.get_running_loop().run_in_executor(None, sign.close))

    async def _place_idle(self, job: JobId, main: NodeId) -> None:
        own = await self._outputs.own_set(job, copy=False)
        if main != self._outputs.me or not own.listing.files:
            await self._place(job, idle=not self._runs(job))

    def _lock(self, job: JobId) -> asyncio.Lock:
        return self._copying.setdefault(job, asyncio.Lock())

    async def _copy(
        self,
        job: JobId,
        node: NodeId,
        copy: bool,
        world: int | None = None,
        upto: int | None = None,
        since: int | None = None,
    ) -> bool:
        """Make the newest copy here like a node's folder, or like its copy of another's; False:
        there is nothing. ``world``: its files come in place unless this node has been main in that
        one or a later one. ``upto``: the node was main in no later one. ``since``: if they are of
        that world, those here that are older than the script's state give way."""
        there = await self._outputs.ask_set(node, job, copy, self.limit_bytes)
        have = await asyncio.to_thread(self._outputs.copies.newest, job)
        if not there.listing.files:
            return False  # a disk that was lost is no reason to lose this one's
        newer = since is not None and there.generation >= since
        if upto is not None:
            there = replace(there, generation=min(there.generation, upto))
        if have is None or (have.made.source, have.made.listing) != (there.source, there.listing):
            bringing = Bringing(self._outputs, job, node, copy, self.limit_bytes, there, have)
            await self._bring(bringing, world, newer)
        else:
            await self._place(job, idle=False, newer=newer)
        return True

    async def _bring(self, bringing: Bringing, world: int | None, newer: bool) -> None:
        """Fetch what a copy lacks, and make the next one."""
        staged = await _to_its_end(self._outputs.copies.stage, bringing.job)
        try:
            made = await bringing.into(staged)
            await self._put(bringing.job, staged, made, world, commit=True, newer=newer)
        except BaseException:
            await _to_its_end(self._outputs.copies.drop, staged)
            raise

    async def _place(self, job: JobId, *, idle: bool, newer: bool = False) -> None:
        if (copy := await asyncio.to_thread(self._outputs.copies.newest, job)) is not None:
            put = partial(self._put, job, copy.files, copy.made, None, idle=idle, newer=newer)
            if (damaged := await put()) and await mend(self._outputs, job, copy, damaged):
                await put()

    async def _put(
        self,
        job: JobId,
        files: Path,
        made: OutputSet,
        world: int | None,
        *,
        idle: bool = False,
        commit: bool = False,
        newer: bool = False,
    ) -> Sequence[OutputFile]:
        """Put a copy's files in place; which stay away, since the disk has changed them. ``newer``:
        than the script's state, so also over older ones of this node's own. ``commit``: it is
        staged, and becomes the newest one in the same step: who is main next has all that is in its
        newest copy. That step waits for no disk, so that a world need not."""
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
                begin = partial(placing.begin, files, idle=idle, newer=newer)
                await _to_its_end(begin, stop=stop)
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
        return placing.damaged


def _newer(known: Mapping[NodeId, OutputSet], me: NodeId) -> list[NodeId]:
    """Who has a newer copy than this node, the newest first."""
    own = known.get(me)
    newer = [node for node in known if own is None or known[node].order > own.order]
    return sorted(newer, key=lambda node: known[node].order, reverse=True)


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
