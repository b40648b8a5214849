"""The line of a lineage: its own checkpoints and those that it descends from. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from elasticd.checkpoints.manifest import Manifest
from elasticd.types import Lineage, Point


def line(
    manifests: Iterable[Manifest], lineage: Lineage, parent: Point | None = None
) -> list[Manifest]:
    """The checkpoints whose states ``lineage`` went through, oldest first.

    Of an ancestor only those up to the point where the next lineage left it. ``parent`` is where
    ``lineage`` was opened,
    for when none of its own checkpoints is here to say so.
    """
    return traced(manifests, lineage, parent)[0]


def traced(
    manifests: Iterable[Manifest], lineage: Lineage, parent: Point | None = None
) -> tuple[list[Manifest], Point | None]:
    """As :func:`line`, and the state where it breaks off: no checkpoint is here of the lineage of
    that one, to say what came before. None: it is known from its beginning."""
    by_lineage: dict[Lineage, list[Manifest]] = {}
    for manifest in manifests:
        by_lineage.setdefault(manifest.lineage, []).append(manifest)
    found: list[Manifest] = []
    own = by_lineage.pop(lineage, [])
    found += own
    origin = own[0].parent if own else parent
    while origin is not None and origin.lineage in by_lineage:
        own = by_lineage.pop(origin.lineage)
        found += [m for m in own if m.step <= origin.step]
        before = own[0].parent
        # Where an ancestor was left can't be after where its heir was.
        origin = before and replace(before, step=min(before.step, origin.step))
    return sorted(found, key=lambda m: (m.step, m.stamp)), origin


def descends(lineage: Lineage, point: Point, parents: Mapping[Lineage, Point | None]) -> bool:
    """Whether ``lineage`` went through the state ``point``; ``parents`` says where each lineage was
    opened, as far as that is known."""
    limit, passed = point.step, {lineage}
    while lineage != point.lineage:
        origin = parents.get(lineage)
        if origin is None or origin.lineage in passed:
            return False
        limit, lineage = min(limit, origin.step), origin.lineage
        passed.add(lineage)
    return limit == point.step


def ancestry(lineage: Lineage, parents: Mapping[Lineage, Point | None]) -> tuple[Lineage, ...]:
    """``lineage`` and those from which it was opened, the newest first, as far as is known."""
    found = [lineage]
    while (origin := parents.get(found[-1])) is not None and origin.lineage not in found:
        found.append(origin.lineage)
    return tuple(found)
