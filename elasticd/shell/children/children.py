"""The node's trainers and reducers as processes: started, connected, listened to."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from elasticd.core.words import effects as e
from elasticd.core.words.bulk import WantState
from elasticd.core.words.codec import Words
from elasticd.core.words.effects import FromChild
from elasticd.core.words.limits import bounded
from elasticd.core.words.records import JobRecord, World
from elasticd.core.words.reducers import FROM_REDUCER, TO_REDUCER, ReducerHere, ReducerWarm
from elasticd.core.words.trainers import (
    FROM_TRAINER,
    TO_TRAINER,
    LoadState,
    TakeState,
    TrainerAtRun,
    TrainerExported,
    TrainerHere,
    TrainerNotExported,
    TrainerWaiting,
)
from elasticd.errors import ProtocolError
from elasticd.ipc.child import DUMP_SIGNAL
from elasticd.recovery.signatures import LastMemory
from elasticd.settings.job import JobSpec
from elasticd.shell.children import given, launches
from elasticd.shell.children.awake import Awake
from elasticd.shell.children.births import Births
from elasticd.shell.children.datapaths import DataPaths
from elasticd.shell.children.engines import Engines
from elasticd.shell.children.exports import Exports
from elasticd.shell.children.files import ChildFiles, is_shown, show_log
from elasticd.shell.children.logtimes import LogTimes
from elasticd.shell.children.otherpython import other_python
from elasticd.shell.children.running import RunningChild, running
from elasticd.shell.children.server import Child, ChildServer
from elasticd.shell.children.temporary import TemporaryFolders
from elasticd.shell.children.watch import ChildWatch
from elasticd.shell.tasks import Tasks, tell
from elasticd.supervision import machine
from elasticd.supervision.endings import ending_status
from elasticd.supervision.logs import RotatedLog
from elasticd.types import JobId, Role, Tag

_TAIL_LINES = 100
_DUMP_SECONDS = 0.3
"""What a hung trainer gets to print the stacks of its threads before it is killed."""
TEND_LOGS_SECONDS = 1.0
"""Between two looks at the sizes of the children's logs: one is over its limit for as long."""
_REDUCER_START_SECONDS = 60.0
_UNKNOWN_STATUS = 1
_FROM: dict[Role, Words[Any]] = {"trainer": FROM_TRAINER, "reducer": FROM_REDUCER}
_READINESS = (ReducerWarm, ReducerHere, TrainerWaiting, TrainerAtRun, TrainerHere)
"""The first words by which a child says that it is up."""

log = structlog.get_logger(__name__)


class Children:
    """Performs the effects that concern children and posts what they do as events.

    What the system refuses while one is performed ends that child, as an event: never the daemon.
    """

    def __init__(
        self,
        home: Path,
        hosts: Sequence[str],
        server: ChildServer,
        job_record: Callable[[JobId], JobRecord],
        post: Callable[[e.Event], None],
    ) -> None:
        """``hosts``: the IPv4 addresses on which reducers listen, best first; others may follow."""
        self.files = ChildFiles(home)
        self._log_times = LogTimes()
        self._tending = asyncio.Lock()
        self.hosts, self.awake = tuple(hosts), Awake()
        self._temporary = TemporaryFolders(self.files)
        self._server = server
        self._job_record = job_record
        self._post = post
        self._running: dict[e.ChildId, RunningChild] = {}
        self._ended: list[RunningChild] = []
        """Since their logs were tended last."""
        self._paths = DataPaths()
        self._exports = Exports()
        self._tasks = Tasks("what was to be done with a process of this node")
        self._births = Births(server, post, self._enlist, self.kill, self._not_born)
        self.engines = Engines(self._running, post, self._tasks.start)
        self.watch = ChildWatch(
            lambda: server.children,
            self._on_stopped,
            lambda low: post(e.MemoryPressure(low.reason, low.left_bytes, low.mild)),
        )

    def adopt(self, children: Sequence[Child]) -> tuple[e.Leftover, ...]:
        """Take in children that an earlier daemon has started; returns what the control plane must
        know of them. What the temporary files of others are goes."""
        self._tasks.start(self._temporary.sweep(child.nonce for child in children))
        leftovers = []
        for number, child in enumerate(children, 1):
            job = JobId(child.entry.job) if child.entry.job else None
            self._enlist(running(number, child, job, 0))
            leftovers.append(e.Leftover(number, child.role, job, child.entry.spare, child.pid))
            log.info("child adopted", child=repr(child), job=job)
        return tuple(leftovers)

    def runs(self, job: JobId) -> bool:
        """Whether a process of that job is here, or will be at once."""
        return self._births.of(job) or any(one.job == job for one in self._running.values())

    def close(self) -> None:
        self.watch.close()
        self._tasks.stop()
        self._paths.close_all()
        for one in self._running.values():
            one.close()

    # --- effects ------------------------------------------------------------------------------

    def start_trainer(self, effect: e.StartTrainer) -> None:
        record = self._job_record(effect.job)
        spec = JobSpec.from_dict(record.spec)
        seconds, python = spec.recovery.user_code_seconds, other_python(spec)
        launch = partial(launches.trainer, effect, record, self.files)
        self._births.begin(effect.child, launch, effect.job, seconds, python)

    def start_reducer(self, effect: e.StartReducer) -> None:
        launch = partial(launches.reducer, self.files)
        self._births.begin(effect.child, launch, None, _REDUCER_START_SECONDS)

    def _enlist(self, one: RunningChild) -> None:
        self._running[one.id] = one
        one.stay_awake(self.awake)

    def _not_born(self, nonce: str) -> None:
        self._tasks.start(self._temporary.remove(nonce))

    def kill(self, effect: e.KillChild) -> None:
        one = self._running.get(effect.child)
        if one is None:
            self._births.call_off(effect)
            return
        log.info("killing child", child=repr(one.child), reason=effect.reason)
        with one.served():
            if effect.graceful:
                one.unit.tell(machine.StopUnit())
            elif effect.dump:
                self._tasks.start(self._dump_and_kill(one))
            else:
                self._kill_now(one)

    def _kill_now(self, one: RunningChild) -> None:
        status = None if one.child.ended else ending_status(one.child.pid)
        one.child.kill(signal.SIGKILL)
        if status is not None:
            # Said before anything else can be said of it: who asked for its end decides by that.
            self._over(one, status, before=True)

    async def _dump_and_kill(self, one: RunningChild) -> None:
        with one.served():
            one.child.kill(DUMP_SIGNAL)
            await asyncio.sleep(_DUMP_SECONDS)
            one.child.kill(signal.SIGKILL)

    def tell_trainer(self, effect: e.TellTrainer) -> None:
        one = self._running.get(effect.child)
        if one is not None:
            with one.served():
                one.child.send(TO_TRAINER.encode(effect.message))

    def enter_world(self, effect: e.EnterWorld, checkpoint_folder: Path) -> None:
        one = self._running.get(effect.trainer)
        if one is None:
            return
        self._tasks.start(self._show_log(one))
        spec = JobSpec.from_dict(self._job_record(effect.world.job).spec)
        world = given.to_trainer(effect.world, effect.rank, spec, checkpoint_folder)
        message = TO_TRAINER.encode(world)
        with one.served():
            if effect.reducer is None:
                one.child.send(message)
                return
            memory, trainer_end = self._paths.open(effect.reducer)
            with trainer_end:
                one.child.send(message, [memory, trainer_end.fileno()])
        if effect.reducer not in self._running:
            self._paths.close(effect.reducer)

    def form_reducer(self, effect: e.FormReducer) -> None:
        one, path = self._running.get(effect.reducer), self._paths.to(effect.reducer)
        if one is None or path is None:
            return
        one.ring = effect.world, effect.rank
        with one.served():
            one.child.send(TO_REDUCER.encode(effect.order), path.fds())
        self._paths.close(effect.reducer)
        self.engines.ordered(one, effect.order)

    async def _show_log(self, one: RunningChild) -> None:
        async with self._tending:  # it may be rotated right now
            try:
                shown = await self._server.disk.done(partial(show_log, one.log.path))
            except OSError as error:
                why = str(error)
                log.warning("the log of a spare is not shown", child=repr(one.child), reason=why)
                return
            if shown is not None:
                one.log = RotatedLog(shown)
                self._server.log_moved(one.child, shown)

    # --- questions from elsewhere -------------------------------------------------------------

    async def tend_logs(self) -> None:
        """Rotate and note the logs of living children, for ever; the disk is waited for in a
        thread."""
        while True:
            await asyncio.sleep(TEND_LOGS_SECONDS)
            await self.tend_logs_once()

    async def tend_logs_once(self) -> None:
        """Rotate the logs that are over their limit, and note how long all are. Those of children
        that have ended since are among them, once."""
        async with self._tending:
            tended, self._ended = [*self._running.values(), *self._ended], []
            noted = {
                one.log.path: one.job
                for one in tended
                if one.job is not None and is_shown(one.log.path)
            }
            await asyncio.to_thread(self._tend_logs, [one.log for one in tended], noted)

    def _tend_logs(self, logs: Sequence[RotatedLog], noted: Mapping[Path, JobId]) -> None:
        self._log_times.keep(log.path for log in logs)
        for log_ in logs:
            job = noted.get(log_.path)
            with contextlib.suppress(OSError):  # it went, or the disk is full: the next time
                if job is None:
                    log_.rotate()
                elif rotated := log_.rotate(partial(self.files.dropping, job)):
                    self._log_times.rotated(log_.path, time.time(), cut=rotated.cut_bytes > 0)
        for path in noted:
            self._log_times.note(path, time.time())

    def open_logs(self) -> set[Path]:
        """The files to which living children write."""
        return {one.log.path for one in self._running.values()}

    def rings(self) -> list[tuple[int, World, int]]:
        """Per reducer in a ring its pid, the world and its rank."""
        return [(one.child.pid, *one.ring) for one in self._running.values() if one.ring]

    async def export(self, job: JobId, wanted: WantState) -> int:
        """A descriptor of the safetensors that ``wanted`` names, which the caller closes.

        Raises:
            OperationError: no trainer of ours has that now.
            ProtocolError: no trainer could answer that.
        """
        trainers = [one for one in self._running.values() if one.job == job]
        return await self._exports.ask(trainers, wanted)

    def load(
        self, trainer: e.ChildId, generation: Tag, fds: list[int], digests: Sequence[str] = ()
    ) -> None:
        """Hand the trainer its state; closes our copies of the descriptors. It checks ``digests``,
        of all files or none, while it reads."""
        one = self._running.get(trainer)
        if one is not None:
            with one.served():
                one.child.send(TO_TRAINER.encode(LoadState(generation, tuple(digests))), fds)
        _close(fds)

    def prepare(self, trainer: e.ChildId, serial: int, fds: list[int]) -> None:
        """Hand a trainer that is in no world a state; closes our copies of the descriptors."""
        one = self._running.get(trainer)
        if one is not None:
            with one.served():
                one.child.send(TO_TRAINER.encode(TakeState(serial)), fds)
        _close(fds)

    # --- what children do ---------------------------------------------------------------------

    def on_message(self, child: Child, message: dict[str, Any], fds: list[int]) -> None:
        """Take a frame and its descriptors.

        Raises:
            ProtocolError: no child of ours says this.
        """
        one = self._who(child)
        if one is None:
            _close(fds)
            return
        try:
            word: FromChild = bounded(_FROM[child.role].decode(message))
        except ProtocolError:
            _close(fds)
            raise
        if isinstance(word, _READINESS):
            one.unit.tell(machine.UnitReady())
        if isinstance(word, TrainerExported) and len(fds) == 1:
            self._exports.given(one.id, word.serial, fds[0])
            return
        if isinstance(word, TrainerExported):
            self._exports.refused(one.id, word.serial, "its file did not come with it")
        elif isinstance(word, TrainerNotExported):
            self._exports.refused(one.id, word.serial, word.reason)
        elif isinstance(word, ReducerWarm) and (why := one.claim_port(self.hosts)):
            self.kill(e.KillChild(one.id, why))
        elif isinstance(word, ReducerWarm):
            self._post(one.warm(self.hosts[0], word))
        else:
            self._post(e.ChildSaid(one.id, word))
        _close(fds)

    def reaped(self, child: Child) -> None:
        """It and all that it has started have ended, and write no more: its temporary files go."""
        self._tasks.start(self._temporary.remove(child.nonce))

    def on_exit(self, child: Child, status: int | None) -> None:
        """After :meth:`reaped`, when its end may be told."""
        one = self._who(child)
        if one is not None:
            self._over(one, status)

    def _over(self, one: RunningChild, status: int | None, *, before: bool = False) -> None:
        child = one.child
        del self._running[one.id]
        self._ended.append(one)
        one.close()
        late = one.unit.late_seconds
        one.unit.tell(machine.Exited(_UNKNOWN_STATUS if status is None else status))
        self._paths.close(one.id)
        self._exports.ended(one.id)
        log.info("child ended", child=repr(child), status=status)
        memory, words = self._looked_at(one)
        status, words = one.told_end(status, words)
        self._post(e.ChildExited(one.id, status, words, memory, before, late))

    def _looked_at(self, one: RunningChild) -> tuple[LastMemory | None, str]:
        """What is known of its memory, and what it said at last. Nothing that is looked at may
        keep an end from being told: the job would wait for that process for ever."""
        memory, words = None, ""
        try:
            words = one.last_words(_TAIL_LINES)
            memory = self.watch.last_seen(one.child.pid)
        except Exception as error:
            tell("looking at a process that has ended failed", error)
        return memory, words

    def _on_stopped(self, child: Child, seconds: float) -> None:
        one = self._who(child)
        if one is not None:
            self._post(e.ChildStopped(one.id, seconds))

    def _who(self, child: Child) -> RunningChild | None:
        mine = (one for one in self._running.values() if one.child.nonce == child.nonce)
        return next(mine, None)


def _close(fds: list[int]) -> None:
    for fd in fds:
        with contextlib.suppress(OSError):
            os.close(fd)
