"""A trainer's place in a job run by daemons: what the training thread asks, put to the protocol."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import assert_never

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from elasticd.core.words import trainers as w
from elasticd.core.words.rewording import reworded
from elasticd.errors import GenerationLost
from elasticd.ipc.child import DaemonLink
from elasticd.ipc.plan import ChunkPlan
from elasticd.outputsigns import await_coming, note_given
from elasticd.recovery.samples import apart
from elasticd.settings.job import JobSpec
from elasticd.train.link.driver import ProtocolDriver
from elasticd.train.protocol.calls import Answer
from elasticd.train.states.state import Snapshot
from elasticd.train.states.updates import Update
from elasticd.train.steps.contents import FORM
from elasticd.train.steps.relief import allocate
from elasticd.train.steps.seat import Delivery, Files, Parts, ProbeResult
from elasticd.train.world import TrainerWorld
from elasticd.types import NanCure, Point, ProofPart, WorkPhase

OUTPUT_SECONDS = 8.0
"""Its daemon takes less, and says if it could not have them (storage/outputkeeper.py)."""


class DaemonSeat:
    """Implements :class:`elasticd.train.steps.seat.Seat` over a connection to a daemon."""

    def __init__(self, link: DaemonLink, spec: JobSpec, output_dir: Path) -> None:
        self.spec, self.output_dir = spec, output_dir
        self._link, self.driver = link, ProtocolDriver(link, spec)
        self._reducer = self.driver.reducer

    def start(self) -> None:
        """Begin to answer the daemon."""
        self.driver.start()

    # The training thread: worlds.

    def await_run(self) -> None:
        """Say that the interpreter is up, and wait for ``run``."""
        self.driver.say(w.TrainerWaiting())
        with self.driver.turn() as protocol:
            self.driver.wait(lambda: protocol.may_run)

    def at_run(self, fingerprint: Mapping[str, str]) -> None:
        self.driver.say(w.TrainerAtRun(*apart(fingerprint, FORM)))
        self.driver.start_reports()

    def take(self) -> TrainerWorld | Delivery | None:
        self._reducer.close()
        self.phase("idle")
        with self.driver.turn() as protocol:
            self.driver.wait(lambda: protocol.is_called)
            taken = protocol.take()
            self._reducer.rest()
        match taken:
            case None:
                return None
            case w.TakeState(serial), fds:
                return Delivery(serial, fds)
            case TrainerWorld() as world, fds:
                self._reducer.open(world, fds)
                return _with_output(world, self.output_dir, self.driver)
            case _:
                assert_never(taken)

    def check(self) -> None:
        with self.driver.turn() as protocol:
            protocol.current()

    def files(self, world: TrainerWorld) -> Files:
        with self.driver.turn() as protocol:
            self.driver.wait(lambda: protocol.state_came(world.generation))
            word, fds = protocol.take_state()
        return Files(fds, word.digests)

    def spoilt(self, reason: str) -> None:
        with self.driver.turn() as protocol:
            protocol.spoilt(reason)

    def unloaded(self, reason: str, *, spent: bool = False) -> None:
        with self.driver.turn() as protocol:
            protocol.unloaded(reason, spent=spent)

    def refuse(self, reason: str, *, unfit: bool = False) -> None:
        with self.driver.turn() as protocol:
            protocol.refuse(reason, unfit=unfit)

    def out_of_memory(self, evidence: str) -> bool:
        with self.driver.turn() as protocol:
            protocol.out_of_memory(evidence)
        self._reducer.close()
        return True

    def not_finite(self, step: int, loss: str, policy: NanCure) -> None:
        with self.driver.turn() as protocol:
            protocol.not_finite(step, loss, policy)

    # The training thread: states.

    def adopt(self, point: Point) -> None:
        with self.driver.turn() as protocol:
            protocol.adopt(point)

    def hold(
        self, snapshot: Snapshot, update: Update | None = None, *, loaded: bool = False
    ) -> None:
        with self.driver.turn() as protocol:
            protocol.hold(snapshot, update, loaded=loaded)

    def begin_update(self) -> None:
        with self.driver.storing():
            self.driver.background.writer.make_room(self.check)
        with self.driver.turn() as protocol:
            protocol.begin_update()
            self.driver.set_phase("update")

    def begin_preparing(self, delivery: Delivery) -> None:
        with self.driver.turn() as protocol:
            protocol.begin_preparing(delivery.serial)

    def prepared(self, delivery: Delivery, reason: str) -> None:
        with self.driver.turn() as protocol:
            protocol.prepared(delivery.serial, reason)

    def idle_since(self, delivery: Delivery) -> bool:
        with self.driver.turn() as protocol:
            return protocol.idle_since(delivery.serial)

    def keeps_updates(self) -> bool:
        with self.driver.turn() as protocol:
            return protocol.keeps_updates

    def owes_update(self) -> bool:
        with self.driver.turn() as protocol:
            return protocol.owes_update

    def replays(self, takes: bool) -> None:
        with self.driver.turn() as protocol:
            protocol.held.may_replay(takes)

    def end_update(self, point: Point, loss: float | None, update: Update | None) -> None:
        with self.driver.turn() as protocol:
            self.driver.report.breakdown.step_done()
            if loss is not None:
                self.driver.report.step_done(point.step, loss)
                self.driver.background.writer.step_done()
            protocol.end_update(point, update)

    def end_load(self, point: Point, *, complete: bool) -> None:
        note_given(self.output_dir)  # before anybody hears that it is here
        with self.driver.turn() as protocol:
            protocol.end_load(point, complete=complete)

    def give_up_update(self) -> None:
        with self.driver.turn() as protocol:
            protocol.give_up_update()

    # The training thread: steps.

    def reduce(self, step: int, plan: ChunkPlan, parts: Parts, out: NDArray[np.float32]) -> None:
        began = time.monotonic()
        self.tell(step, plan, parts, out)
        with self.driver.turn() as protocol:
            seconds = time.monotonic() - began
            self.driver.report.reduced(protocol.current(), plan, len(out), seconds)

    def tell(self, step: int, plan: ChunkPlan, parts: Parts, out: NDArray[np.float32]) -> None:
        with self.driver.turn() as protocol:
            protocol.current()
            self.driver.set_phase("reduce")
        with self._may_break():
            self._reducer.reduce(step, plan, parts, out)
        self.check()

    def barrier(self, point: Point) -> None:
        with self.driver.turn() as protocol:
            alone = protocol.current().size == 1
            if not alone:
                self.driver.set_phase("reduce")
        if not alone:
            with self._may_break():
                self._reducer.barrier(point.step)
        with self.driver.turn() as protocol:
            protocol.commit(point.step)
            self.driver.set_phase("user")

    @contextmanager
    def _may_break(self) -> Iterator[None]:
        """What is done with the reducer; if that is lost the world is left."""
        try:
            yield
        except GenerationLost as error:
            with self.driver.turn() as protocol:
                protocol.lose_reducer(str(error))
            self._reducer.close()
            raise

    def halt(self, point: Point) -> None:
        with self.driver.turn() as protocol:
            if protocol.visits.is_halted(point.step):
                self.driver.set_phase("paused")
                self.driver.wait(lambda: not protocol.visits.is_halted(point.step))
            protocol.visits.halting.begins(point.step + 1)

    def stop(self, point: Point, reason: str) -> None:
        self.phase("idle")
        with self.driver.turn() as protocol:
            protocol.say(w.TrainerStops(protocol.current().generation, point.step, reason))
        with self.driver.turn() as protocol:
            self.driver.wait(lambda: protocol.world is None)

    def call(self, body: int, index: int, step: int) -> Answer:
        with self.driver.turn() as protocol:
            protocol.calls.asks(body, index, step)
            answer = protocol.calls.called(body, index)
        if answer is not None:
            return answer
        with self.driver.waiting():
            return self._called(body, index, step)

    def _called(self, body: int, index: int, step: int) -> Answer:
        while True:
            with self.driver.turn() as protocol:
                protocol.calls.asks(body, index, step)
            with self.driver.turn() as protocol:
                self.driver.wait(
                    lambda: (
                        protocol.calls.called(body, index) is not None
                        or not protocol.calls.has_asked(body, index, step)
                    )
                )
                answer = protocol.calls.called(body, index)
            if answer is not None:
                return answer

    def returned(self, body: int, index: int, data: bytes) -> None:
        with self.driver.turn() as protocol:
            protocol.calls.returned(body, index, data)

    def body_begins(self, body: int) -> None:
        with self.driver.turn() as protocol:
            protocol.calls.begins(body)

    def body_ends(self, body: int, calls: int) -> None:
        with self.driver.turn() as protocol:
            protocol.calls.ends(body, calls)

    def disown(self) -> None:
        with self.driver.turn() as protocol:
            protocol.held.disown()

    def agree(self, result: ProbeResult) -> None:
        told = reworded(w.TrainerProbed, result)
        with self.driver.waiting():
            with self.driver.turn() as protocol:
                protocol.probe(told)
            with self.driver.turn() as protocol:
                self.driver.wait(lambda: protocol.visits.is_judged)
                protocol.current()

    def finish(self, point: Point) -> bool:
        self.phase("idle")
        with self.driver.turn() as protocol:
            protocol.finish(point)
        with self.driver.turn() as protocol:
            self.driver.wait(lambda: protocol.may_end)
            return protocol.released

    def strain(self) -> None:
        wanted, self.driver.strain_bytes = self.driver.strain_bytes, 0
        if wanted:
            allocate(wanted)

    def close(self, status: int) -> None:
        """The script is over: leave in order."""
        self._reducer.close()
        self.driver.send_progress()
        self._link.say_goodbye(status)
        self._link.close()

    # In the background.

    def checkpoint(self, world: TrainerWorld, snapshot: Snapshot, stall_seconds: float) -> None:
        name = self.spec.checkpoint.keep_best
        with self.driver.turn() as protocol:
            halt_step = protocol.visits.halting.step
            metric = self.driver.report.figure(name) if name else None
        with self.driver.storing():
            self.driver.background.checkpoint(world, snapshot, stall_seconds, halt_step, metric)

    def verify(self, world: TrainerWorld, snapshot: Snapshot) -> None:
        self.driver.background.verify(world, snapshot)

    def rechecked(
        self, world: TrainerWorld, step: int, grain: int, vector: Sequence[mx.array]
    ) -> None:
        self.driver.background.rechecked(world, step, grain, vector)

    def prove(
        self, world: TrainerWorld, part: ProofPart, digests: Callable[[], dict[str, str]]
    ) -> None:
        self.driver.background.prove(world, part, digests)

    def await_proof(self, part: ProofPart) -> None:
        self.phase("idle")
        with self.driver.turn() as protocol:
            self.driver.wait(lambda: protocol.visits.is_proven(part))
            protocol.current()

    def sampled(self, world: TrainerWorld, step: int, at: int, digest: str, name: str) -> None:
        self.driver.say(w.TrainerSampled(world.generation, step, at, digest, name))

    # What is shown.

    def timed(self, grain_seconds: float, update_seconds: float) -> None:
        self.driver.timed(grain_seconds, update_seconds)

    def phase(self, name: WorkPhase) -> None:
        self.driver.phase(name)

    def show(self, step: int, values: Mapping[str, float]) -> None:
        self.driver.show(step, values)


def _with_output(world: TrainerWorld, output: Path, driver: ProtocolDriver) -> TrainerWorld:
    """What main before has written may be on its way to rank 0: it waits for that, within reason.
    Returns the world."""

    def goes_on() -> bool:
        with driver.turn() as protocol:
            return protocol.world is not None

    if world.rank == 0 and not await_coming(output, OUTPUT_SECONDS, goes_on):
        text = "output files of the rank 0 before are not here after"
        print(f"elasticd: {text} {OUTPUT_SECONDS:g} s", file=sys.stderr, flush=True)
    return world
