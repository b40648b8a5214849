"""The loss of a job by step, and what its script gave to ``run.log``. Bounded, and one value a
step, whatever was done again. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from elasticd.types import MOST_NAME_LETTERS, MOST_NAMED

MOST_POINTS = 1000
MOST_NAMED_POINTS = 250
Loss = tuple[int, float]
"""A step with its loss, or another value of it."""


@dataclass(slots=True)
class StepCurve:
    """Steps only go up. When there are too many, every other one goes."""

    most: int = MOST_POINTS
    points: list[Loss] = field(default_factory=list)

    def add(self, step: int, value: float) -> bool:
        """Whether that is new."""
        if step < 1 or (self.points and step <= self.points[-1][0]):
            return False
        self.points.append((step, value))
        if len(self.points) > self.most:
            self.points = [*self.points[:-1:2], self.points[-1]]
        return True

    def go_back(self, step: int) -> None:
        """This step and later ones are made again."""
        while self.points and self.points[-1][0] >= step:
            self.points.pop()


@dataclass(slots=True)
class LossCurve:
    """Of one job. ``named``: the curves of its other values."""

    most: int = MOST_POINTS
    curve: StepCurve = field(init=False)
    named: dict[str, StepCurve] = field(default_factory=dict)
    lost: int | None = None
    """How many committed steps were lost so far, when that was told last."""

    def __post_init__(self) -> None:
        self.curve = StepCurve(self.most)

    @property
    def points(self) -> list[Loss]:
        """The losses."""
        return self.curve.points

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
            self._go_back(min(step, last - (lost - since) + 1) if last else step)
        if lost is not None:
            self.lost = lost if since is None else max(lost, since)
        return self.curve.add(step, loss)

    def show(self, name: str, step: int, value: float) -> bool:
        """What the script gave to ``run.log`` in that step; whether that is new."""
        if name not in self.named:
            if len(self.named) > MOST_NAMED or len(name) > MOST_NAME_LETTERS:
                return False
            self.named[name] = StepCurve(min(self.most, MOST_NAMED_POINTS))
        return self.named[name].add(step, value)

    def copy(self) -> LossCurve:
        """One of its own."""
        made = LossCurve(self.most, lost=self.lost)
        made.curve.points = list(self.points)
        made.named = {name: replace(e, points=list(e.points)) for name, e in self.named.items()}
        return made

    def told(self) -> dict[str, list[Loss]]:
        """The points of each name that has some."""
        return {name: list(each.points) for name, each in self.named.items() if each.points}

    def recall(self, losses: Iterable[Loss], named: Mapping[str, Iterable[Loss]]) -> None:
        """What was kept of the time before; afterwards it is not known what was lost."""
        for step, loss in losses:
            self.take(step, loss, 0)
        for name, points in named.items():
            for step, value in points:
                self.show(name, step, value)
        self.lost = None

    def _go_back(self, step: int) -> None:
        for each in (self.curve, *self.named.values()):
            each.go_back(step)
