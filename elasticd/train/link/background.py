"""What a trainer does beside training: writes checkpoints and exports, computes digests."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import mlx.core as mx

from elasticd.checkpoints.codec import write_memory
from elasticd.core.words import trainers as w
from elasticd.errors import StateError
from elasticd.machinememory import machine_memory
from elasticd.settings.job import JobSpec
from elasticd.train import threads
from elasticd.train.protocol.lending import Given
from elasticd.train.settling import settled
from elasticd.train.states.exports import contents
from elasticd.train.states.parts import told
from elasticd.train.states.state import Snapshot
from elasticd.train.states.updates import Update
from elasticd.train.states.writer import CheckpointWriter, Task, mode_of
from elasticd.train.steps.layout import vector_digest
from elasticd.train.steps.named import BestFigure
from elasticd.train.world import TrainerWorld
from elasticd.types import ProofPart


class Background:
    """Each thing in a thread of its own, which ends with what it has to say.

    What is begun from the training thread raises RuntimeError if the GPU has failed meanwhile."""

    def __init__(
        self,
        spec: JobSpec,
        say: Callable[[w.FromTrainer], None],
        send_file: Callable[[w.FromTrainer, int], None],
        note: Callable[[Mapping[str, float | str]], None],
        settle: Callable[[], None] = settled,
    ) -> None:
        """``send_file`` sends a descriptor along; ``note`` shows a figure to the user; ``settle``
        waits for the GPU: what failed there would look like a node that computes wrong."""
        self._spec, self._say, self._send_file = spec, say, send_file
        self._settle = settle
        self._verifier: threading.Thread | None = None
        self.writer = CheckpointWriter(say, note)
        self._best = BestFigure(spec.checkpoint.keep_best)

    def export(self, serial: int, given: Given[Snapshot, Update]) -> None:
        threads.start("export", partial(self._export, serial, given))

    def _export(self, serial: int, given: Given[Snapshot, Update]) -> None:
        try:
            fd = write_memory(*contents(given))
        except StateError as error:
            self._say(w.TrainerNotExported(serial, str(error)))
            return
        try:
            size = os.fstat(fd).st_size
            self._send_file(w.TrainerExported(serial, given.step, given.stamp, size), fd)
        finally:
            os.close(fd)

    def checkpoint(
        self,
        world: TrainerWorld,
        snapshot: Snapshot,
        stall_seconds: float,
        halt_step: int,
        metric: float | None,
    ) -> None:
        """``metric`` is the figure by which the best checkpoint is kept, as it is now."""
        self._settle()
        step, last = snapshot.point.step, world.ends_at(self._spec.train.steps)
        must = step in (last, world.point.step, halt_step)
        if world.rank == 0:
            self._best.stored(step, metric, last=step == last)
        available = machine_memory().available_bytes
        mode = mode_of(self._spec.checkpoint.snapshot, snapshot.bytes, available or 0)
        self.writer.submit(Task(world, snapshot, stall_seconds, mode, must, metric))

    def verify(self, world: TrainerWorld, snapshot: Snapshot) -> None:
        """Unless one is still at it."""
        self._settle()
        if self._verifier is None or not self._verifier.is_alive():
            self._verifier = threads.start("verify", partial(self._verify, world, snapshot))

    def _verify(self, world: TrainerWorld, snapshot: Snapshot) -> None:
        point, found = snapshot.point, told(snapshot)
        self._say(
            w.TrainerDigest(world.generation, point.step, point.stamp, found.check, found.parts)
        )

    def rechecked(
        self, world: TrainerWorld, step: int, grain: int, vector: Sequence[mx.array]
    ) -> None:
        self._settle()

        def tell() -> None:
            digest = vector_digest(vector)
            self._say(w.TrainerRechecked(world.generation, step, grain, digest))

        threads.start("recheck", tell)

    def prove(
        self, world: TrainerWorld, part: ProofPart, digests: Callable[[], dict[str, str]]
    ) -> None:
        self._settle()

        def tell() -> None:
            self._say(w.TrainerProves(world.generation, part, digests()))

        threads.start("prove", tell)
