"""What trainers hold, and give to each other."""

from __future__ import annotations

from dataclasses import dataclass

from elasticd.types import Point, Stamp, Tag, next_stamp


@dataclass(frozen=True, slots=True)
class State:
    """What can be read of a state."""

    point: Point
    bytes: int = 0
    seen: str = ""
    """What the calls of run.on_main have returned that led to it."""
    set_up: bool = True
    drift: str = ""
    """As chips.py has it."""


@dataclass(frozen=True, slots=True)
class Update:
    """One reduced gradient, as it is given to others."""

    before: Stamp
    generation: Tag
    step: int
    stamp: Stamp
    bytes: int
    complete: bool = True
    seen: str = ""
    on_cpu: bool = False

    def after(self, point: Point) -> Point | None:
        """What it makes of ``point``; None if it doesn't follow that."""
        stamp = next_stamp(point.stamp, self.generation, point.step + 1)
        if (self.before, self.step, self.stamp) != (point.stamp, point.step + 1, stamp):
            return None
        return Point(point.lineage, self.step, self.stamp)


@dataclass(frozen=True, slots=True)
class Brought:
    """A state, or, with updates, what leads to it."""

    point: Point
    updates: tuple[Update, ...] = ()
    spoilt: bool = False
    drift: str = ""
    """As chips.py has it."""
    doubts: tuple[tuple[object, bool], ...] = ()
    """Those of who gives it."""
    taint: frozenset[int] = frozenset()
    """As well."""
    seen: str = ""
    set_up: bool = True


def loss_of(step: int) -> float:
    """What every member shows as the loss of a step."""
    return 1.0 / (1 + step)
