"""``python -m elasticd.train.trial WISH FD``: the job itself, alone, with other settings.

Who has started it is told of each step at FD, and ends it when it has seen enough. A trial has a
copy of the job's folder for itself, and its outputs and checkpoints beside that. No daemon knows of
it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import mlx.core as mx

from elasticd.preflight.trials import WARM_STEPS
from elasticd.settings.job import JobSpec
from elasticd.supervision.priority import BEHIND_RANKS, give_way
from elasticd.train.alone import AloneSeat
from elasticd.train.link.background import Background
from elasticd.train.link.host import leave_aside, run_job, watch_reruns
from elasticd.train.link.stderrkept import STDERR
from elasticd.train.memory import node_limit
from elasticd.train.states.state import Snapshot
from elasticd.train.states.updates import Update
from elasticd.train.steps import randomness, relief
from elasticd.train.steps.seat import HOST
from elasticd.train.world import TrainerWorld, Writes
from elasticd.types import Point


@dataclass(frozen=True, slots=True)
class TrialWish:
    """What a trial is to be like, as who starts it has written it. ``relief``: the level of it.
    ``store_every``: steps between checkpoints; 0: none. ``aside``: it gives way to all others."""

    spec: dict[str, Any]
    relief: int = 0
    store_every: int = 0
    aside: bool = False


class TrialSeat(AloneSeat):
    """Tells of each step when its update is made, as lines of JSON."""

    def __init__(self, spec: JobSpec, folder: Path, wanted: TrialWish, fd: int) -> None:
        super().__init__(spec, folder)
        self._wanted, self._fd = wanted, fd
        self._stored = folder / "checkpoints"
        self._background = Background(spec, self._wrote, self._sends, self._notes)

    def say(self, **told: Any) -> None:
        """One line."""
        os.write(self._fd, json.dumps(told).encode() + b"\n")

    def _first_world(self) -> TrainerWorld:
        every = self._wanted.store_every
        return replace(
            super()._first_world(),
            relief=self._wanted.relief,
            checkpointed=0 if every else self.spec.train.steps,
            checkpoint_folder=self._stored,
            writes=Writes(every=every or self.spec.train.steps, count=1, replicas=1),
        )

    def end_update(self, point: Point, loss: float | None, update: Update | None) -> None:
        self._background.writer.step_done()
        at, active, peak = time.monotonic(), mx.get_active_memory(), mx.get_peak_memory()
        self.say(step=point.step, at=at, active=active, peak=peak)
        if point.step == WARM_STEPS:
            mx.reset_peak_memory()

    def checkpoint(self, world: TrainerWorld, snapshot: Snapshot, stall_seconds: float) -> None:
        self._background.checkpoint(world, snapshot, stall_seconds, -1, None)

    def _wrote(self, word: Any) -> None:
        shards = getattr(word, "shards", ())
        if shards:
            self.say(wrote=sum(shard.bytes for shard in shards), seconds=word.write_seconds)

    def _sends(self, word: Any, fd: int) -> None:
        raise AssertionError("nobody asks a trial for a state")

    def _notes(self, values: Mapping[str, float | str]) -> None:
        if "checkpoint_error" in values:
            self.say(unwritten=str(values["checkpoint_error"]))


def main(wish: Path, fd: int) -> NoReturn:
    """Run the script that the job names, and exit with its status."""
    wanted = TrialWish(**json.loads(wish.read_bytes()))
    if wanted.aside:
        give_way(BEHIND_RANKS)
    spec, folder = JobSpec.from_dict(wanted.spec), Path.cwd()
    seat = TrialSeat(spec, folder, wanted, fd)
    limit, _ = node_limit(None)
    seat.say(limit=limit)
    HOST.prepare(seat)
    STDERR.keep()
    relief.begin(aside=True)
    randomness.seed_script(spec.train.seed)
    watch_reruns(spec, folder, leave_aside)
    leave_aside(run_job(spec, folder))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
