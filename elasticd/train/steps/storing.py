"""What becomes of a state that all members have committed: it is compared, and stored."""

from __future__ import annotations

from elasticd.train.steps.seat import Seat
from elasticd.train.steps.standing import Standing
from elasticd.train.world import TrainerWorld


class Storing:
    """Of one process. Each committed state is looked at once, when its body has ended."""

    def __init__(self, seat: Seat, standing: Standing) -> None:
        self._seat, self._standing = seat, standing
        self.owed = False
        """The state in place was not looked at yet."""

    def look(self, world: TrainerWorld | None) -> None:
        """Compare and store the state in place, in the background, if that is due."""
        self.owed = False
        snapshot = self._standing.snapshot
        if world is None or snapshot is None:
            return
        step, spec = snapshot.point.step, self._seat.spec
        every = spec.recovery.verify_every
        if every and world.size > 1 and step % every == 0:
            self._seat.verify(world, snapshot)
        if world.checkpoint_due(step, spec.train.steps):
            self._seat.checkpoint(world, snapshot, self._standing.stall_seconds)
