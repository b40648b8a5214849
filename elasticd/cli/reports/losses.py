"""Curves from the files that a script has written with ``run.open``: steps, and figures by step.

What a script has logged itself is read beside what daemons keep: lines of JSON with ``step`` and
``loss``, or columns, by the names in a first line or else the first two.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from elasticd.cli.screen import clean

MOST_POINTS = 1000
"""Of a curve: more are not seen on paper."""
LEAST_POINTS = 2

Point2 = tuple[float, float]


@dataclass(frozen=True, slots=True)
class LoggedCurve:
    """``name``: where it comes from. By step."""

    name: str
    points: tuple[Point2, ...]


def curve(name: str, text: str) -> LoggedCurve | None:
    """What a file tells of a loss by step; None: nothing that is certain."""
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        return None
    if lines[0].lstrip().startswith("{"):
        label, points = "loss", _of_json(lines)
    else:
        label, points = _of_columns(lines)
    # A job that went back has its later lines behind.
    steps = [step for step, _ in points]
    if len(points) < LEAST_POINTS or steps != sorted(set(steps)):
        return None
    return LoggedCurve(clean(f"{name}: {label}"), tuple(thinned(points)))


def _of_json(lines: Iterable[str]) -> list[Point2]:
    points = []
    for line in lines:
        try:
            said = json.loads(line)
        except (ValueError, RecursionError):
            return []
        if isinstance(said, dict):
            points += _point(said.get("step"), said.get("loss"))
    return points


def _of_columns(lines: Sequence[str]) -> tuple[str, list[Point2]]:
    try:
        rows = list(csv.reader(lines)) if "," in lines[0] else [line.split() for line in lines]
    except csv.Error:
        return "", []
    head = [cell.strip().lower() for cell in rows[0]]
    if "step" in head and "loss" in head:
        at, of, label, rows = head.index("step"), head.index("loss"), "loss", rows[1:]
    else:
        at, of, label = 0, 1, "second column"
    points: list[Point2] = []
    for row in rows:
        if len(row) <= max(at, of):
            return label, []
        step, value = _parsed(row[at]), _parsed(row[of])
        if step is None or value is None:
            return label, []
        points += _point(step, value)
    return label, points


def _parsed(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None


def _point(step: object, value: object) -> list[Point2]:
    pair = []
    for each in (step, value):
        if isinstance(each, bool) or not isinstance(each, int | float):
            return []
        if abs(each) > 1e15 or not math.isfinite(each):
            return []
        pair.append(float(each))
    return [(pair[0], pair[1])] if pair[0] == int(pair[0]) and pair[0] >= 0 else []


def thinned(points: Sequence[Point2]) -> list[Point2]:
    """At most :data:`MOST_POINTS`: the ends, and of each stretch the lowest and the highest."""
    if len(points) <= MOST_POINTS:
        return list(points)
    size = -(-len(points) // (MOST_POINTS // 2 - 1))
    found = {points[0], points[-1]}
    for start in range(0, len(points), size):
        part = points[start : start + size]
        found |= {min(part, key=lambda p: p[1]), max(part, key=lambda p: p[1])}
    return sorted(found)
