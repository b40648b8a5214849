"""A world of one without a daemon, so that the same script runs by itself."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from elasticd.errors import GenerationLost, UsageError
from elasticd.ipc.plan import ChunkPlan
from elasticd.recovery.exactness import FAST, NO_REPEAT, refusal
from elasticd.settings.job import JobSpec, load
from elasticd.settings.plain import RESTARTS
from elasticd.train.beginning import (
    HASHED,
    JOB_VARIABLE,
    hashes_are_fixed,
    job_path,
    watch_reruns,
)
from elasticd.train.protocol.calls import Answer
from elasticd.train.states.state import Snapshot
from elasticd.train.states.updates import Update
from elasticd.train.steps.seat import HOST, Delivery, Files, Parts, ProbeResult
from elasticd.train.world import TrainerWorld, Writes
from elasticd.types import (
    JobId,
    Lineage,
    NanCure,
    NodeId,
    Point,
    ProofPart,
    Tag,
    first_stamp,
)

OUTPUT_FOLDER = "output"
_PLAIN = (
    'this job is mode = "plain", whose script makes its own group; elasticd.Run needs mode ='
    ' "elastic" with [batch] and [train] in job.toml (elasticd.average_gradients, check_weights and'
    " plain.keep work here)"
)


class AloneSeat:
    """Implements :class:`elasticd.train.steps.seat.Seat` with nobody else there."""

    def __init__(self, spec: JobSpec, folder: Path) -> None:
        self.spec = spec
        self.output_dir = folder / OUTPUT_FOLDER
        self.probe: ProbeResult | None = None
        self._taken = False
        self._world: TrainerWorld | None = None
        self._returned: bytes | None = None
        """By the function that ``run.on_main`` has called just now."""

    @classmethod
    def find(cls) -> AloneSeat:
        """The job of the script that runs: ``ELASTICD_JOB``, or its job.toml.

        Raises:
            UsageError: there is no such file, the script has its seat already, or the job is plain
                or requires bits that can't be promised.
            ConfigError: the file is wrong.
        """
        path = job_path()
        if RESTARTS in os.environ:
            raise UsageError(_PLAIN)
        if not path.is_file():
            raise UsageError(
                f"{path}: not found; elasticd.Run reads its parameters from the job.toml beside "
                "the script, or in a folder above that has the script as its entrypoint, or from "
                f"the file that {JOB_VARIABLE} names"
            )
        folder = path.resolve().parent
        spec = load(path).read_in(folder)
        if spec.plain is not None:
            raise UsageError(f"{path}: {_PLAIN}")
        HOST.sit_alone()
        watch_reruns()
        found = cls(spec, folder)
        if spec.world.reduction != "exact":
            found._admit(FAST)
        if not hashes_are_fixed():
            found._admit(HASHED)
        return found

    def at_run(self, fingerprint: Mapping[str, str]) -> None:
        pass

    def take(self) -> TrainerWorld | None:
        if self._taken:
            return None
        self._taken, self._world = True, self._world or self._first_world()
        return self._world

    def _first_world(self) -> TrainerWorld:
        job, lineage = JobId(self.spec.job.name), Lineage("alone")
        share = ((0, self.spec.grains),)
        return TrainerWorld(
            generation=Tag(1, NodeId("alone"), ""),
            job=job,
            rank=0,
            size=1,
            members=(NodeId("alone"),),
            point=Point(lineage, 0, first_stamp(job, lineage)),
            state="init",
            shares_now=(share,),
            shares=(share,),
            reduction=self.spec.world.reduction,
            checkpointed=self.spec.train.steps,
            checkpoint_folder=self.output_dir,
            writes=Writes(every=1, count=1, replicas=1),
            micro=self.spec.batch.micro,
            relief=0,
        )

    def check(self) -> None:
        if not self._taken:
            raise GenerationLost("another world is there")

    def stop(self, point: Point, reason: str) -> None:
        assert self._world is not None
        print(f"elasticd: step {point.step} is the last: {reason}", file=sys.stderr)
        self._world = replace(self._world, point=point, state="keep", last=point.step)
        self._taken = False

    def files(self, world: TrainerWorld) -> Files:
        raise UsageError("there is no state to load")

    def spoilt(self, reason: str) -> None:
        raise UsageError(reason)

    def adopt(self, point: Point) -> None:
        pass

    def hold(
        self, snapshot: Snapshot, update: Update | None = None, *, loaded: bool = False
    ) -> None:
        pass

    def begin_update(self) -> None:
        pass

    def begin_preparing(self, delivery: Delivery) -> None:
        raise UsageError("nobody delivers states here")

    def prepared(self, delivery: Delivery, reason: str) -> None:
        pass

    def idle_since(self, delivery: Delivery) -> bool:
        raise UsageError("nobody delivers states here")

    def unloaded(self, reason: str, *, spent: bool = False) -> None:
        raise UsageError(reason)

    def keeps_updates(self) -> bool:
        return False

    def owes_update(self) -> bool:
        return False

    def replays(self, takes: bool) -> None:
        pass

    def end_update(self, point: Point, loss: float | None, update: Update | None) -> None:
        pass

    def end_load(self, point: Point, *, complete: bool) -> None:
        pass

    def give_up_update(self) -> None:
        pass

    def reduce(self, step: int, plan: ChunkPlan, parts: Parts, out: NDArray[np.float32]) -> None:
        raise UsageError("a world of one reduces nothing")

    def tell(self, step: int, plan: ChunkPlan, parts: Parts, out: NDArray[np.float32]) -> None:
        raise UsageError("a world of one tells nobody")

    def barrier(self, point: Point) -> None:
        pass

    def halt(self, point: Point) -> None:
        """Nobody pauses it."""

    def call(self, body: int, index: int, step: int) -> Answer:
        data, self._returned = self._returned, None
        return "run" if data is None else data

    def returned(self, body: int, index: int, data: bytes) -> None:
        self._returned = data

    def body_begins(self, body: int) -> None:
        pass

    def body_ends(self, body: int, calls: int) -> None:
        pass

    def disown(self) -> None:
        pass

    def agree(self, result: ProbeResult) -> None:
        self.probe = result
        if not result.repeats:
            self._admit(NO_REPEAT)

    def _admit(self, reason: str) -> None:
        """The bits can't be promised."""
        if self.spec.world.require_exact:
            raise UsageError(refusal(reason))
        print(f"elasticd: exact: false: {reason}", file=sys.stderr)

    def checkpoint(self, world: TrainerWorld, snapshot: Snapshot, stall_seconds: float) -> None:
        pass

    def refuse(self, reason: str, *, unfit: bool = False) -> None:
        raise UsageError(reason)

    def strain(self) -> None:
        pass

    def out_of_memory(self, evidence: str) -> bool:
        return False

    def not_finite(self, step: int, loss: str, policy: NanCure) -> None:
        if policy == "restore":
            raise UsageError(
                f"the loss of step {step} is {loss}, and without a daemon there is no checkpoint to"
                " go back to"
            )
        print(f"elasticd: step {step} is skipped: its loss is {loss}", file=sys.stderr)

    def verify(self, world: TrainerWorld, snapshot: Snapshot) -> None:
        pass

    def rechecked(
        self, world: TrainerWorld, step: int, grain: int, vector: Sequence[mx.array]
    ) -> None:
        pass

    def prove(
        self, world: TrainerWorld, part: ProofPart, digests: Callable[[], dict[str, str]]
    ) -> None:
        pass

    def await_proof(self, part: ProofPart) -> None:
        pass

    def sampled(self, world: TrainerWorld, step: int, at: int, digest: str, name: str) -> None:
        pass

    def finish(self, point: Point) -> bool:
        return True

    def timed(self, grain_seconds: float, update_seconds: float) -> None:
        pass

    def phase(self, name: str) -> None:
        pass

    def show(self, step: int, values: Mapping[str, float]) -> None:
        pass
