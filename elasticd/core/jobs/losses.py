"""The loss of a job by step: bounded, and one value a step, whatever was done again. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

MOST_POINTS = 1000
Loss = tuple[int, float]
"""A step with its loss."""


@dataclass(slots=True)
class LossCurve:
    """Steps only go up. When there are too many, every other one goes."""

    most: int = MOST_POINTS
    points: list[Loss] = field(default_factory=list)
    lost: int | None = None
    """How many committed steps were lost so far, when that was told last."""

    def take(self, step: int, loss: float, lost: int | None = None) -> bool:
        """The loss of the last committed step; whether that is new.

        ``lost``: how many steps had to be made again so far. Only who has lost some goes back: a
        leader that has just begun to lead may know of an older step first. None: that is not known,
        and who is told of an older step goes back.
        """
        since = self.lost
        last = self.points[-1][0] if self.points else 0
        if lost is None:
            self._go_back(step)
        elif since is not None and lost > since:
            self._go_back(min(step, last - (lost - since) + 1))
        if lost is not None:
            self.lost = lost if since is None else max(lost, since)
        if step < 1 or (self.points and step <= self.points[-1][0]):
            return False
        self.points.append((step, loss))
        if len(self.points) > self.most:
            self.points = [*self.points[:-1:2], self.points[-1]]
        return True

    def _go_back(self, step: int) -> None:
        """This step and later ones are made again."""
        while self.points and self.points[-1][0] >= step:
            self.points.pop()
