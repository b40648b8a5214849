"""The state in place: what it is called, and who may have it.

The state of a step is what the loop's body of that step has left. It is captured there, once.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from elasticd.train.states.ranks import Ranks
from elasticd.train.states.state import Loaded, Own, Snapshot, TrainingState
from elasticd.train.states.tracked import RANKS
from elasticd.train.states.updates import Update
from elasticd.train.steps.seat import Seat
from elasticd.types import Point


class Standing:
    """``state`` is the model, the optimizer and what else the script tracks."""

    def __init__(self, seat: Seat, state: TrainingState) -> None:
        spec = seat.spec
        self.seat, self.state = seat, state
        self.seed, self._global_size = spec.train.seed, spec.batch.global_
        self.ranks = Ranks()
        """What each rank has of its own."""
        self.point: Point | None = None
        self.snapshot: Snapshot | None = None
        """From the end of a body until the next update."""
        self.set_up = False
        """Whether the script's own code before its loop has made its part of it."""
        self.stall_seconds = 0.0
        """What the newest snapshot has cost."""
        self.loss: float | None = None
        """Of the step that was applied last; None: it was skipped."""
        self._update: tuple[Update, Own | None, Own] | None = None
        """The newest, what the body changed before it, and what it left, if anybody needs it."""

    @property
    def step(self) -> int:
        """The step after it, which is computed from it."""
        assert self.point is not None
        return self.point.step + 1

    @property
    def replays(self) -> bool:
        """Whether others' updates can be applied to it."""
        return self.state.optimizer is not None and self.state.summed is not None

    def publish(self, *, loaded: bool = False) -> None:
        """It can be read from now on."""
        assert self.point is not None
        started = time.monotonic()
        samples = self.point.step * self._global_size
        snapshot = self.state.capture(self.point, self.seed, samples, set_up=self.set_up)
        self.stall_seconds = time.monotonic() - started
        self.snapshot, update = snapshot, None
        if self._update is not None:
            newest, before, left = self._update
            update = newest.with_body(before, left.changed_to(snapshot.own), snapshot)
            self._update = None
        self.seat.replays(self.replays)
        self.seat.hold(snapshot, update, loaded=loaded)

    def install(self, loaded: Loaded) -> None:
        """Put a state in place of what is there. What this rank has of its own stays, unless the
        job goes back to an earlier step."""
        self.state.install(loaded)
        self.set_up = loaded.set_up
        self.state.may_renew(not loaded.set_up)
        if self.point is not None and loaded.point.step < self.point.step:
            self.ranks.go_back()

    def restore(self) -> None:
        """Put the newest snapshot in place of what the script's own code made of it since."""
        assert self.snapshot is not None
        self.state.install(Loaded.of(self.snapshot))
        self.ranks.put_back()

    def keep(self, point: Point) -> None:
        """A world starts from it, perhaps in another lineage; may raise GenerationLost."""
        self.seat.adopt(point)
        self.point = point
        assert self.snapshot is not None
        self.snapshot = replace(self.snapshot, point=point)
        self.seat.hold(self.snapshot)

    def track_by_rank(self, name: str, thing: Any) -> None:
        """Make ``thing`` part of the state, each rank's own.

        Raises:
            UsageError: the name is taken or no name, or the thing can't be stored.
        """
        self.state.check_name(name)
        self.ranks.track(name, thing)
        if not self.state.tracks(RANKS):
            self.state.track(RANKS, self.ranks)

    # A step.

    def touched(self) -> Own | None:
        """What the script's own code has changed of the snapshot; None if that can't be told."""
        return None if self.snapshot is None else self.snapshot.own.changed_to(self.state.own())

    def updated(self, update: Update, before: Own | None) -> None:
        """``update`` has led to it. What the body still changes is to be told to those who may need
        that update."""
        self._update = update, before, self.state.own()
