"""The node's trainers and reducers as processes: started, connected, listened to."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import structlog

from elasticd.core.words import effects as e
from elasticd.core.words.children import (
    FROM_REDUCER,
    FROM_TRAINER,
    TO_REDUCER,
    TO_TRAINER,
    ExportState,
    FormRing,
    FromChild,
    GiveWorld,
    LoadState,
    ReducerHere,
    ReducerWarm,
    TakeState,
    TrainerAtRun,
    TrainerExported,
    TrainerHere,
    TrainerNotExported,
    TrainerWaiting,
    WritePlan,
)
from elasticd.core.words.codec import Words, from_plain
from elasticd.core.words.records import JobRecord, World
from elasticd.errors import OperationError, ProtocolError
from elasticd.ipc.child import DUMP_SIGNAL
from elasticd.ipc.listening import is_listening
from elasticd.ipc.memory import create_memory
from elasticd.recovery.relief import cut
from elasticd.settings.job import JobSpec
from elasticd.shell.children.ports import free_port
from elasticd.shell.children.server import Child, ChildServer, Launch
from elasticd.shell.children.units import RunningUnit
from elasticd.shell.children.watch import ChildWatch
from elasticd.supervision import machine
from elasticd.supervision.endings import ending_status
from elasticd.supervision.logs import RotatedLog
from elasticd.supervision.unit import Unit
from elasticd.types import JobId, Tag

_LISTEN_POLL_SECONDS = 0.002
_TAIL_LINES = 100
_DUMP_SECONDS = 0.3
"""What a hung trainer gets to print the stacks of its threads before it is killed."""
_REDUCER_START_SECONDS = 60.0
_STOP_SECONDS = 3.0
_MAX_PARTS = 64
_UNKNOWN_STATUS = 1
_FROM: dict[str, Words[Any]] = {"trainer": FROM_TRAINER, "reducer": FROM_REDUCER}
_READINESS = (ReducerWarm, ReducerHere, TrainerWaiting, TrainerAtRun, TrainerHere)
"""The first words by which a child says that it is up."""
_SHOWN_LOG = "-trainer.log"
_SPARE_LOG = "-spare.log"
_PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "USER", "SHELL", "SSL_CERT_FILE", "VIRTUAL_ENV")
_PASSED_ON_PREFIXES = ("MLX_", "PYTHON")

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class DataPath:
    """What connects a trainer and a reducer, until the reducer is told to form its ring."""

    memory: int
    reducer_end: socket.socket

    def close(self) -> None:
        os.close(self.memory)
        self.reducer_end.close()


@dataclass(slots=True)
class Rank:
    """One child of ours."""

    id: e.ChildId
    child: Child
    job: JobId | None
    log: RotatedLog
    unit: RunningUnit
    host: str = ""
    ring: tuple[World, int] | None = None
    """Of a reducer: the world whose ring it was told to form, and its rank there."""
    exports: dict[int, asyncio.Future[int]] = field(default_factory=dict)


class Ranks:
    """Performs the effects that concern children and posts what they do as events."""

    def __init__(
        self,
        home: Path,
        hosts: Sequence[str],
        server: ChildServer,
        job_record: Callable[[JobId], JobRecord],
        post: Callable[[e.Event], None],
    ) -> None:
        """``hosts`` are the IPv4 addresses on which reducers listen, best first."""
        self._home = home
        self._hosts = tuple(hosts)
        self._server = server
        self._job_record = job_record
        self._post = post
        self._ranks: dict[e.ChildId, Rank] = {}
        self._ids: dict[str, e.ChildId] = {}
        self._paths: dict[e.ChildId, DataPath] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._serials = 0
        self.watch = ChildWatch(
            lambda: server.children,
            self._on_stopped,
            lambda reason, left: post(e.MemoryPressure(reason, left)),
        )

    def adopt(self, children: Sequence[Child]) -> tuple[e.Leftover, ...]:
        """Take in children that an earlier daemon has started; returns what the control plane must
        know of them."""
        leftovers = []
        for number, child in enumerate(children, 1):
            role: e.Role = "reducer" if child.role == "reducer" else "trainer"
            job = JobId(child.entry.job) if child.entry.job else None
            self._enlist(number, child, job, 0)
            leftovers.append(e.Leftover(number, role, job, child.entry.spare, child.pid))
            log.info("child adopted", child=repr(child), job=job)
        return tuple(leftovers)

    # --- effects ------------------------------------------------------------------------------

    def start_trainer(self, effect: e.StartTrainer) -> None:
        record = self._job_record(effect.job)
        spec = JobSpec.from_dict(record.spec)
        folder = self.work_folder(effect.job)
        output = self._home / "output" / effect.job
        output.mkdir(parents=True, exist_ok=True)
        settings = {
            "job": effect.job,
            "spec": record.spec,
            "script": str(folder / spec.job.entrypoint),
            "args": list(spec.job.args),
            "output_dir": str(output),
            "spare": "interpreter"
            if effect.spare and spec.recovery.spare == "interpreter"
            else "script",
        }
        python = spec.job.python or sys.executable
        command = [python, "-m", "elasticd.train"]
        # A spare repeats what the first trainer printed; it is shown once promoted.
        suffix = _SPARE_LOG if effect.spare else _SHOWN_LOG
        name = f"{time.time_ns() // 1_000_000:013d}{suffix}"
        path = self._home / "logs" / effect.job / name
        launch = Launch(
            "trainer", command, folder, path, self._environment(spec), settings, effect.job,
            effect.spare,
        )  # fmt: skip
        self._spawn(effect.child, launch, effect.job, spec.recovery.user_code_seconds)

    def start_reducer(self, effect: e.StartReducer) -> None:
        command = [sys.executable, "-m", "elasticd.reducer"]
        path = self._home / "logs" / "reducer.log"
        launch = Launch("reducer", command, self._home, path, self._environment(None))
        self._spawn(effect.child, launch, None, _REDUCER_START_SECONDS)

    def kill(self, effect: e.KillChild) -> None:
        rank = self._ranks.get(effect.child)
        if rank is not None:
            log.info("killing child", child=repr(rank.child), reason=effect.reason)
            if effect.graceful:
                rank.unit.tell(machine.Stop())
            elif effect.dump:
                self._spawn_task(self._dump_and_kill(rank.child))
            else:
                self._kill_now(rank)

    def _kill_now(self, rank: Rank) -> None:
        status = None if rank.child.ended else ending_status(rank.child.pid)
        rank.child.kill(signal.SIGKILL)
        if status is not None:
            # Said before anything else can be said of it: who asked for its end decides by that.
            self._over(rank, status, before=True)

    def stop_reducer(self, effect: e.StopReducer) -> None:
        self._signal(effect.child, signal.SIGSTOP)

    def continue_reducer(self, effect: e.ContinueReducer) -> None:
        self._signal(effect.child, signal.SIGCONT)

    def tell_trainer(self, effect: e.TellTrainer) -> None:
        rank = self._ranks.get(effect.child)
        if rank is not None:
            rank.child.send(TO_TRAINER.encode(effect.message))

    def enter_world(self, effect: e.EnterWorld, checkpoint_folder: Path) -> None:
        rank = self._ranks.get(effect.trainer)
        if rank is None:
            return
        self._show_log(rank)
        spec = JobSpec.from_dict(self._job_record(effect.world.job).spec)
        given = _given(effect.world, effect.rank, spec, checkpoint_folder)
        message = TO_TRAINER.encode(given)
        if effect.reducer is None:
            rank.child.send(message)
            return
        memory = create_memory()
        trainer_end, reducer_end = socket.socketpair()
        with trainer_end:
            rank.child.send(message, [memory, trainer_end.fileno()])
        self._paths[effect.reducer] = DataPath(memory, reducer_end)
        if effect.reducer not in self._ranks:
            self._close_path(effect.reducer)

    def form_reducer(self, effect: e.FormReducer) -> None:
        rank, path = self._ranks.get(effect.reducer), self._paths.get(effect.reducer)
        if rank is None or path is None:
            return
        world = effect.world
        rank.ring = world, effect.rank
        spec = JobSpec.from_dict(self._job_record(world.job).spec)
        form = FormRing(
            world.generation, effect.rank, len(world.members), world.hosts, spec.world.reduction
        )
        rank.child.send(TO_REDUCER.encode(form), [path.memory, path.reducer_end.fileno()])
        self._close_path(effect.reducer)
        port = int(world.hosts[effect.rank].rpartition(":")[2])
        self._spawn_task(self._watch_listen(rank, port))

    # --- questions from elsewhere -------------------------------------------------------------

    def work_folder(self, job: JobId) -> Path:
        return self._home / "work" / job

    def shown_logs(self, job: JobId) -> list[Path]:
        """The files with what the job's ranks printed here, in the order in which it was printed.

        A log's rotated parts, numbered from the newest, come before it.
        """
        paths = (self._home / "logs" / job).glob(f"*{_SHOWN_LOG}*")

        def order(path: Path) -> tuple[str, int]:
            start, _, age = path.name.partition(_SHOWN_LOG)
            return start, -int(age[1:] or 0)

        return sorted(paths, key=order)

    def rotate_logs(self) -> None:
        """Rotate the logs of living children that have grown over their limit."""
        for rank in self._ranks.values():
            rank.log.rotate()

    def rings(self) -> list[tuple[int, World, int]]:
        """Per reducer in a ring its pid, the world and its rank."""
        return [(rank.child.pid, *rank.ring) for rank in self._ranks.values() if rank.ring]

    async def export(self, job: JobId, request: Mapping[str, Any]) -> int:
        """A descriptor of the safetensors that ``request`` asks for (step, stamp, since, part,
        parts: docs/protocols.md §1), which the caller closes.

        Raises:
            OperationError: no trainer of ours has that now.
            ProtocolError: no trainer could answer that.
        """
        asked = _asked(request)
        reason = "no trainer"
        for rank in [r for r in self._ranks.values() if r.job == job]:
            self._serials += 1
            serial = self._serials
            future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            rank.exports[serial] = future
            rank.child.send(TO_TRAINER.encode(replace(asked, serial=serial)))
            try:
                return await future
            except OperationError as error:
                reason = str(error)
            finally:
                rank.exports.pop(serial, None)
        raise OperationError(f"step {asked.step} can't be exported: {reason}")

    def load(
        self, trainer: e.ChildId, generation: Tag, fds: list[int], digests: Sequence[str] = ()
    ) -> None:
        """Hand the trainer its state; closes our copies of the descriptors. It checks ``digests``,
        of all files or none, while it reads."""
        rank = self._ranks.get(trainer)
        if rank is not None:
            rank.child.send(TO_TRAINER.encode(LoadState(generation, tuple(digests))), fds)
        for fd in fds:
            os.close(fd)

    def prepare(self, trainer: e.ChildId, serial: int, fds: list[int]) -> None:
        """Hand a trainer that is in no world a state; closes our copies of the descriptors."""
        rank = self._ranks.get(trainer)
        if rank is not None:
            rank.child.send(TO_TRAINER.encode(TakeState(serial)), fds)
        _close(fds)

    def close(self) -> None:
        self.watch.close()
        for task in self._tasks:
            task.cancel()
        for reducer in list(self._paths):
            self._close_path(reducer)

    # --- children -----------------------------------------------------------------------------

    def on_message(self, child: Child, message: dict[str, Any], fds: list[int]) -> None:
        """Take a frame and its descriptors.

        Raises:
            ProtocolError: no child of ours says this.
        """
        rank = self._rank_of(child)
        if rank is None:
            _close(fds)
            return
        try:
            word: FromChild = _FROM[child.role].decode(message)
        except ProtocolError:
            _close(fds)
            raise
        if isinstance(word, _READINESS):
            rank.unit.tell(machine.Ready())
        match word:
            case TrainerExported(serial) if len(fds) == 1:
                self._exported(rank, serial, fds[0])
                return
            case TrainerExported(serial):
                self._not_exported(rank, serial, "its file did not come with it")
            case TrainerNotExported(serial, reason):
                self._not_exported(rank, serial, reason)
            case ReducerWarm():
                rank.host = f"{self._hosts[0]}:{free_port(*self._hosts)}"
                self._post(e.ReducerReady(rank.id, rank.host))
            case _:
                self._post(e.ChildSaid(rank.id, word))
        _close(fds)

    def on_exit(self, child: Child, status: int | None) -> None:
        rank = self._rank_of(child)
        if rank is not None:
            self._over(rank, status)

    def _over(self, rank: Rank, status: int | None, *, before: bool = False) -> None:
        child = rank.child
        del self._ranks[rank.id], self._ids[child.nonce]
        rank.unit.tell(machine.Exited(_UNKNOWN_STATUS if status is None else status))
        self._close_path(rank.id)
        for future in rank.exports.values():
            if not future.done():
                future.set_exception(OperationError("the trainer ended"))
        log.info("child ended", child=repr(child), status=status)
        memory = self.watch.last_seen(child.pid)
        self._post(e.ChildExited(rank.id, status, rank.log.tail(_TAIL_LINES), memory, before))

    def _on_stopped(self, child: Child, seconds: float) -> None:
        rank = self._rank_of(child)
        if rank is not None:
            self._post(e.ChildStopped(rank.id, seconds))

    async def _dump_and_kill(self, child: Child) -> None:
        child.kill(DUMP_SIGNAL)
        await asyncio.sleep(_DUMP_SECONDS)
        child.kill(signal.SIGKILL)

    def _exported(self, rank: Rank, serial: int, fd: int) -> None:
        future = rank.exports.get(serial)
        if future is None or future.done():
            os.close(fd)
        else:
            future.set_result(fd)

    def _not_exported(self, rank: Rank, serial: int, reason: str) -> None:
        future = rank.exports.get(serial)
        if future is not None and not future.done():
            future.set_exception(OperationError(reason))

    # --- inside -------------------------------------------------------------------------------

    def _rank_of(self, child: Child) -> Rank | None:
        return self._ranks.get(self._ids.get(child.nonce, -1))

    def _spawn(
        self, number: e.ChildId, launch: Launch, job: JobId | None, start_seconds: float
    ) -> None:
        try:
            child = self._server.spawn(launch)
        except OperationError as error:
            log.error("child does not start", reason=str(error))
            self._post(e.ChildExited(number, 127, str(error)))
            return
        self._enlist(number, child, job, start_seconds)
        self._post(e.ChildStarted(number, child.pid))

    def _enlist(
        self, number: e.ChildId, child: Child, job: JobId | None, start_seconds: float
    ) -> None:
        unit = Unit(
            name=f"{child.role} {child.pid}",
            command=(child.role,),
            restart="no",
            start_timeout_seconds=start_seconds,
            stop_timeout_seconds=_STOP_SECONDS,
        )
        running = RunningUnit(unit, child.kill)
        running.tell(machine.Started())
        self._ranks[number] = Rank(number, child, job, RotatedLog(child.log), running)
        self._ids[child.nonce] = number

    def _environment(self, spec: JobSpec | None) -> dict[str, str]:
        cache = self._home / "cache"
        cache.mkdir(parents=True, exist_ok=True)
        environment = {
            key: value
            for key, value in os.environ.items()
            if key in _PASSED_ON or key.startswith(_PASSED_ON_PREFIXES)
        }
        environment |= {"PYTHONUNBUFFERED": "1", "PYTHONHASHSEED": "0", "TMPDIR": str(cache)}
        if spec is not None:
            environment |= spec.job.env
        return environment

    def _show_log(self, rank: Rank) -> None:
        path = rank.log.path
        if path.name.endswith(_SPARE_LOG) and path.exists():
            shown = path.with_name(path.name.removesuffix(_SPARE_LOG) + _SHOWN_LOG)
            path.rename(shown)
            rank.log = RotatedLog(shown)
            self._server.log_moved(rank.child, shown)

    def _signal(self, number: e.ChildId, what: signal.Signals) -> None:
        rank = self._ranks.get(number)
        if rank is not None:
            rank.child.kill(what)

    async def _watch_listen(self, rank: Rank, port: int) -> None:
        """Poll its sockets: while the ring comes up it holds its GIL and can't tell us."""
        while rank.id in self._ranks:
            if is_listening(rank.child.pid, port):
                self._post(e.ReducerListens(rank.id))
                return
            await asyncio.sleep(_LISTEN_POLL_SECONDS)

    def _spawn_task(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _close_path(self, reducer: e.ChildId) -> None:
        path = self._paths.pop(reducer, None)
        if path is not None:
            path.close()


def _given(world: World, rank: int, spec: JobSpec, folder: Path) -> GiveWorld:
    """A world as the trainer of ``rank`` gets it."""
    source = world.sources[rank]
    checkpoint = spec.checkpoint
    return GiveWorld(
        generation=world.generation,
        job=world.job,
        rank=rank,
        size=len(world.members),
        members=world.members,
        lineage=world.lineage,
        step=world.step,
        stamp=world.stamp,
        state="keep" if source == "keep" else "init" if source == "init" else "load",
        shares_now=world.shares_now,
        shares=world.shares,
        reduction=spec.world.reduction,
        checkpointed=world.checkpointed,
        checkpoint_folder=str(folder),
        writes=WritePlan(
            checkpoint.interval_steps, world.shards, checkpoint.replicas, world.writers
        ),
        micro=cut(spec.batch.global_, spec.batch.micro, world.relief).micro,
        relief=world.relief,
    )


def _close(fds: list[int]) -> None:
    for fd in fds:
        with contextlib.suppress(OSError):
            os.close(fd)


def _asked(request: Mapping[str, Any]) -> ExportState:
    """What a trainer is asked to export: checked here, for it would end of what it can't read."""
    asked: ExportState = from_plain(ExportState, {**request, "serial": 0})
    if not isinstance(request["job"], str):  # spares are of no job, and have nothing to answer
        raise ProtocolError("a job's id is text")
    if not 0 <= asked.part < asked.parts <= _MAX_PARTS:
        raise ProtocolError(f"there is no part {asked.part} of {asked.parts}")
    return asked
