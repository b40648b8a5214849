"""The line of a lineage: its own checkpoints and those that it descends from. Pure."""

from __future__ import annotations

from collections.abc import Iterable

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
    by_lineage: dict[Lineage, list[Manifest]] = {}
    for manifest in manifests:
        by_lineage.setdefault(manifest.lineage, []).append(manifest)
    found: list[Manifest] = []
    current: Lineage | None = lineage
    last_step: int | None = None
    while current is not None:
        own = by_lineage.pop(current, [])
        found += [m for m in own if last_step is None or m.step <= last_step]
        origin = own[0].parent if own else parent if current == lineage else None
        current = None if origin is None else origin.lineage
        if origin is not None:
            last_step = origin.step if last_step is None else min(last_step, origin.step)
    return sorted(found, key=lambda m: (m.step, m.stamp))
