"""What a report consists of, however it is written down: texts, tables and charts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from elasticd.cli.reports.chronicle import SeenFault, Stretch

Cell = str | int | float | None


@dataclass(frozen=True, slots=True)
class Note:
    """A sentence or more."""

    text: str


@dataclass(frozen=True, slots=True)
class Verbatim:
    """Text whose lines stay as they are: a configuration, the end of a traceback."""

    text: str


@dataclass(frozen=True, slots=True)
class Sheet:
    """Rows under their columns. ``left_out``: of so many more nothing is shown."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class Chart:
    """One line; ``stepped``: each value holds until the next point. ``said``: the same in words.
    ``small``: there are many of them."""

    title: str
    across: str
    points: tuple[tuple[float, float], ...]
    said: str
    stepped: bool = False
    small: bool = False


@dataclass(frozen=True, slots=True)
class CourseChart:
    """What the time went to, and when faults were found."""

    begin: float
    stretches: tuple[Stretch, ...]
    faults: tuple[SeenFault, ...]
    said: str


Block = Note | Verbatim | Sheet | Chart | CourseChart


@dataclass(frozen=True, slots=True)
class Chapter:
    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Paper:
    title: str
    chapters: tuple[Chapter, ...]


def in_words(points: Sequence[tuple[float, float]], across: str) -> str:
    """A curve for who can't see it."""
    (x0, y0), (x1, y1) = points[0], points[-1]
    low = min(points, key=lambda p: p[1])
    high = max(points, key=lambda p: p[1])
    return (
        f"from {y0:.4g} ({across} {x0:.6g}) to {y1:.4g} ({across} {x1:.6g}); lowest {low[1]:.4g}"
        f" ({across} {low[0]:.6g}), highest {high[1]:.4g} ({across} {high[0]:.6g})"
    )
