"""Drives the trainer's protocol in a real process: a control thread, a lock, a pipe.

The control thread answers the daemon at once, whatever the training thread does. Both call the
protocol (:mod:`elasticd.train.protocol.trainer`), which decides; here its effects are performed,
under one lock, and what it says is sent behind the lock. A training thread that waits for its
reducer is woken through a pipe, any other by the lock's condition.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, assert_never

import mlx.core as mx
import numpy as np
import psutil
from numpy.typing import NDArray

from elasticd.checkpoints.codec import write_memory
from elasticd.core.words import children as w
from elasticd.errors import GenerationLost, ProtocolError, StateError
from elasticd.ipc.child import DaemonLink, Resume
from elasticd.ipc.plan import ChunkPlan
from elasticd.settings.job import JobSpec
from elasticd.train import threads
from elasticd.train.link.outbox import Outbox
from elasticd.train.link.reducing import ReducerPath
from elasticd.train.protocol import effects as e
from elasticd.train.protocol.lending import Given
from elasticd.train.protocol.trainer import TrainerProtocol
from elasticd.train.states.exports import contents
from elasticd.train.states.state import Snapshot
from elasticd.train.states.updates import Update
from elasticd.train.states.writer import CheckpointWriter, Task, mode_of
from elasticd.train.steps.layout import vector_digest
from elasticd.train.steps.progress import Report, Reporter
from elasticd.train.steps.relief import allocate, trim
from elasticd.train.steps.seat import Delivery, Files, Parts, ProbeResult
from elasticd.train.world import TrainerWorld
from elasticd.types import Point, WorkPhase

Protocol = TrainerProtocol[Snapshot, Update]


class Session:
    """Implements :class:`elasticd.train.steps.seat.Seat` over a connection to a daemon."""

    def __init__(self, link: DaemonLink, spec: JobSpec, output_dir: Path) -> None:
        self.spec, self.output_dir = spec, output_dir
        self._link, self._outbox = link, Outbox(link)
        link.introduce = self._introduce
        self._protocol: Protocol = TrainerProtocol()
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._reducer = ReducerPath()
        self._strain_bytes = 0
        self._verifier: threading.Thread | None = None
        self._report = Report()
        self._reporter = Reporter(self._lock, self._send_progress)
        self._writer = CheckpointWriter(self._say, self.log)

    def start(self) -> None:
        """Begin to answer the daemon."""
        threads.start("control", self._listen)

    @contextmanager
    def _turn(self) -> Iterator[Protocol]:
        """Call the protocol, alone, and do what that leads to."""
        try:
            with self._changed:
                try:
                    yield self._protocol
                finally:
                    for effect in self._protocol.effects():
                        self._perform(effect)
                    self._changed.notify_all()
        finally:
            self._outbox.flush()

    def _perform(self, effect: e.Effect) -> None:
        """The caller holds the lock."""
        match effect:
            case e.Say(word):
                self._outbox.put(word)
            case e.Leave():
                self._report.pace.pause()
                self._writer.interrupt()
                self._reducer.wake()
            case e.Drop(fds):
                for fd in fds:
                    os.close(fd)
            case e.Export(serial, given):
                threads.start("export", partial(self._export, serial, given))
            case e.Report():
                self._reporter.touch(urgent=True)
            case _:
                assert_never(effect)

    def _say(self, word: w.FromTrainer) -> None:
        with self._turn() as protocol:
            protocol.say(word)

    # The control thread.

    def _listen(self) -> None:
        for message, fds in self._link.messages():
            self.handle(message, fds)

    def _introduce(self, resume: Resume) -> None:
        """Our daemon was restarted."""
        with self._outbox.restarting():
            with self._lock:
                words = self._protocol.introduce(self._report.figures())
                self._outbox.clear()
            self._outbox.begin_again(words, resume)

    def handle(self, message: dict[str, Any], fds: Sequence[int]) -> None:
        """Take in a frame of the daemon's.

        Raises:
            ProtocolError: it can't be read, or came with other descriptors than it should.
        """
        word = w.TO_TRAINER.decode(message)
        match word:
            case w.GiveWorld(size=size) if len(fds) != (0 if size == 1 else 2):
                raise ProtocolError(f"{len(fds)} descriptors came with a world of {size}")
            case w.LoadState(digests=digests) if len(digests) not in (0, len(fds)):
                raise ProtocolError(f"{len(digests)} digests came with {len(fds)} files")
            case w.TrimMemory():
                trim()
            case w.StrainMemory(size):
                self._strain_bytes = size
            case _:
                pass
        with self._turn() as protocol:
            protocol.hear(word, tuple(fds))

    def _export(self, serial: int, given: Given[Snapshot, Update]) -> None:
        try:
            fd = write_memory(*contents(given))
        except StateError as error:
            self._say(w.TrainerNotExported(serial, str(error)))
            return
        try:
            size = os.fstat(fd).st_size
            said = w.TrainerExported(serial, given.step, given.stamp, size)
            self._outbox.send_file(said, fd)
        finally:
            os.close(fd)

    # The training thread: worlds.

    def await_run(self) -> None:
        """Say that the interpreter is up, and wait for ``run``."""
        self._say(w.TrainerWaiting())
        with self._turn() as protocol:
            self._changed.wait_for(lambda: protocol.may_run)

    def at_run(self, fingerprint: Mapping[str, str]) -> None:
        self._say(w.TrainerAtRun(dict(fingerprint)))
        self._reporter.start()

    def take(self) -> TrainerWorld | Delivery | None:
        self._reducer.close()
        self.phase("idle")
        with self._turn() as protocol:
            self._changed.wait_for(lambda: protocol.is_called)
            taken = protocol.take()
            self._reducer.rest()
        match taken:
            case None:
                return None
            case w.TakeState(serial), fds:
                return Delivery(serial, fds)
            case TrainerWorld() as world, fds:
                self._reducer.open(world, fds)
                return world

    def check(self) -> None:
        with self._lock:
            self._protocol.current()

    def files(self, world: TrainerWorld) -> Files:
        with self._turn() as protocol:
            self._changed.wait_for(lambda: protocol.state_came(world.generation))
            word, fds = protocol.take_state()
        return Files(fds, word.digests)

    def spoilt(self, reason: str) -> None:
        with self._turn() as protocol:
            protocol.spoilt(reason)

    def unloaded(self, reason: str) -> None:
        with self._turn() as protocol:
            protocol.unloaded(reason)

    def refuse(self, reason: str) -> None:
        with self._turn() as protocol:
            protocol.refuse(reason)

    def out_of_memory(self, evidence: str) -> bool:
        with self._turn() as protocol:
            protocol.out_of_memory(evidence)
        self._reducer.close()
        return True

    def not_finite(self, step: int, loss: float, policy: str) -> None:
        with self._turn() as protocol:
            protocol.not_finite(step, loss, policy)

    # The training thread: states.

    def adopt(self, point: Point) -> None:
        with self._turn() as protocol:
            protocol.adopt(point)

    def hold(self, snapshot: Snapshot, *, loaded: bool = False) -> None:
        with self._turn() as protocol:
            protocol.hold(snapshot, loaded=loaded)

    def begin_update(self) -> None:
        self._writer.make_room(self.check)
        with self._turn() as protocol:
            protocol.begin_update()
            self._set_phase("update")

    def begin_preparing(self, delivery: Delivery) -> None:
        with self._turn() as protocol:
            protocol.begin_preparing(delivery.serial)

    def prepared(self, delivery: Delivery, reason: str) -> None:
        with self._turn() as protocol:
            protocol.prepared(delivery.serial, reason)

    def idle_since(self, delivery: Delivery) -> bool:
        with self._lock:
            return self._protocol.idle_since(delivery.serial)

    def keeps_updates(self) -> bool:
        with self._lock:
            return self._protocol.keeps_updates

    def replays(self, *, gives: bool, takes: bool) -> None:
        with self._turn() as protocol:
            protocol.replays(gives=gives, takes=takes)

    def end_update(self, point: Point, loss: float | None, update: Update | None) -> None:
        with self._turn() as protocol:
            if loss is not None:
                self._report.loss = loss
                self._report.pace.step(time.monotonic())
                self._writer.step_done()
            protocol.end_update(point, update)

    def end_load(self, point: Point) -> None:
        with self._turn() as protocol:
            protocol.end_load(point)

    def give_up_update(self) -> None:
        with self._turn() as protocol:
            protocol.give_up_update()

    # The training thread: steps.

    def reduce(self, step: int, plan: ChunkPlan, parts: Parts, out: NDArray[np.float32]) -> None:
        with self._turn() as protocol:
            reduction = protocol.current().reduction
            self._set_phase("reduce")
        with self._may_break():
            self._reducer.reduce(step, plan, parts, out)
        with self._turn() as protocol:
            protocol.current()
            self._report.metrics["bytes_per_step"] = plan.bytes_sent(reduction, len(out))

    def barrier(self, point: Point) -> None:
        with self._turn() as protocol:
            alone = protocol.current().size == 1
            if not alone:
                self._set_phase("reduce")
        if not alone:
            with self._may_break():
                self._reducer.barrier(point.step)
        with self._turn() as protocol:
            protocol.commit(point.step)
            self._set_phase("user")

    @contextmanager
    def _may_break(self) -> Iterator[None]:
        """What is done with the reducer; if that is lost the world is left."""
        try:
            yield
        except GenerationLost as error:
            with self._turn() as protocol:
                protocol.lose_reducer(str(error))
            self._reducer.close()
            raise

    def halt(self, point: Point) -> None:
        with self._turn() as protocol:
            if protocol.is_halted(point.step):
                self._set_phase("paused")
                self._changed.wait_for(lambda: not protocol.is_halted(point.step))

    def agree(self, result: ProbeResult) -> None:
        told = w.TrainerProbed(
            result.repeats, result.gradient, result.update, result.layout, result.state
        )
        with self._turn() as protocol:
            protocol.probe(told)
        with self._turn() as protocol:
            self._changed.wait_for(lambda: protocol.is_judged)
            protocol.current()

    def finish(self, point: Point) -> bool:
        self.phase("idle")
        with self._turn() as protocol:
            protocol.finish(point)
        with self._turn() as protocol:
            self._changed.wait_for(lambda: protocol.may_end)
            return protocol.released

    def strain(self) -> None:
        wanted, self._strain_bytes = self._strain_bytes, 0
        if wanted:
            allocate(wanted)

    def close(self, status: int) -> None:
        """The script is over: leave in order."""
        self._reducer.close()
        self._send_progress()
        self._link.say_goodbye(status)
        self._link.close()

    # In the background.

    def checkpoint(self, world: TrainerWorld, snapshot: Snapshot, stall_seconds: float) -> None:
        with self._lock:
            halt_step = self._protocol.halt_step
            # The figure by which the best checkpoint is kept, as it is now.
            name = self.spec.checkpoint.keep_best
            metric = self._report.figure(name) if name else None
        must = snapshot.point.step in (self.spec.train.steps, world.point.step, halt_step)
        available = psutil.virtual_memory().available
        mode = mode_of(self.spec.checkpoint.snapshot, snapshot.bytes, available)
        self._writer.submit(Task(world, snapshot, stall_seconds, mode, must, metric))

    def verify(self, world: TrainerWorld, snapshot: Snapshot) -> None:
        if self._verifier is None or not self._verifier.is_alive():
            self._verifier = threads.start("verify", partial(self._verify, world, snapshot))

    def _verify(self, world: TrainerWorld, snapshot: Snapshot) -> None:
        point = snapshot.point
        digest = snapshot.check()
        self._say(w.TrainerDigest(world.generation, point.step, point.stamp, digest))

    def rechecked(
        self, world: TrainerWorld, step: int, grain: int, vector: Sequence[mx.array]
    ) -> None:
        def tell() -> None:
            digest = vector_digest(vector)
            self._say(w.TrainerRechecked(world.generation, step, grain, digest))

        threads.start("recheck", tell)

    # What is shown.

    def timed(self, grain_seconds: float, update_seconds: float) -> None:
        with self._lock:
            self._report.grain_seconds = grain_seconds
            self._report.update_seconds = update_seconds

    def phase(self, name: WorkPhase) -> None:
        with self._lock:
            self._set_phase(name)

    def _set_phase(self, name: WorkPhase) -> None:
        """The caller holds the lock."""
        if self._report.phase != name:
            self._report.phase = name
            self._reporter.touch()

    def log(self, values: Mapping[str, float | str]) -> None:
        with self._lock:
            self._report.log(values)
            self._reporter.touch()

    def _send_progress(self) -> None:
        with self._turn() as protocol:
            progress = protocol.progress(self._report.figures())
            if progress is not None:
                protocol.say(progress)
