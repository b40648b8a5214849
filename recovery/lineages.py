"""What became of histories: which lineage goes on where several meet, and which are left for ever.

Pure. Two sides of a cut cluster each go on under a lineage. When they meet, all are frozen, and the
furthest state goes on (elasticd.recovery.restore); what the others trained since they parted is
left: its checkpoints stay until they are pruned, but no world starts from them again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from elasticd.checkpoints.manifest import Manifest, Stored
from elasticd.types import Lineage, NodeId, Point, Tag

Left = tuple[tuple[Lineage, int], ...]
"""Per lineage the step behind which it is left; -1: all of it."""
Ran = tuple[tuple[Lineage, Tag], ...]
"""Per lineage its newest generation that may have taken a step."""
MadeOnCpu = tuple[tuple[Lineage, Tag, bool], ...]
"""Per lineage since which generation, and whether, its updates are made on the CPU."""


@dataclass(frozen=True, slots=True)
class Parting:
    """``left`` ends at ``step``; nothing of it counts after ``since``, where the lineages part."""

    kept: Point
    left: Lineage
    step: int
    since: int
    after: int
    """As in :data:`Left`."""

    @property
    def reason(self) -> str:
        return (
            f"lineage {self.kept.lineage} goes on from step {self.kept.step}; {self.left}, which"
            f" parted from it after step {max(0, self.since)} and came to step {self.step}, is left"
        )


def partings(
    held: Iterable[Point], kept: Point, parent_of: Callable[[Lineage], Point | None]
) -> list[Parting]:
    """The lineages that end where ``kept`` goes on, of those whose states are ``held``.

    A state that ``kept`` has gone through is only behind; who holds it has nothing to lose.
    """
    furthest: dict[Lineage, Point] = {}
    for point in held:
        if point.lineage not in furthest or furthest[point.lineage].step < point.step:
            furthest[point.lineage] = point
    line, found = ancestry(kept, parent_of), []
    for lineage in sorted(furthest):
        point = furthest[lineage]
        if lineage == kept.lineage:
            continue
        common = [
            min(step, line[name])
            for name, step in ancestry(point, parent_of).items()
            if name in line
        ]
        since = max(common, default=-1)
        if point.step > since:
            after = line.get(lineage, -1)
            found.append(Parting(kept, lineage, point.step, since, after))
    return found


def ancestry(point: Point, parent_of: Callable[[Lineage], Point | None]) -> dict[Lineage, int]:
    """The lineages that led to a state, each with the last step that it went through."""
    line: dict[Lineage, int] = {}
    here: Point | None = point
    while here is not None and here.lineage not in line:
        # Where an ancestor was left can't be after where its heir was.
        line[here.lineage] = min([here.step, *line.values()])
        here = parent_of(here.lineage)
    return line


def merged(one: Left, other: Left) -> Left:
    """All that either side says was left."""
    least = dict(one)
    for lineage, after in other:
        least[lineage] = min(after, least.get(lineage, after))
    return tuple(sorted(least.items()))


def latest(one: Ran, other: Ran) -> Ran:
    """The newest generations that either side knows."""
    newest = dict(one)
    for lineage, generation in other:
        newest[lineage] = max(generation, newest.get(lineage, generation))
    return tuple(sorted(newest.items()))


def decided(one: MadeOnCpu, other: MadeOnCpu) -> MadeOnCpu:
    """Of each lineage what was decided last, as far as either side knows."""
    newest: dict[Lineage, tuple[Tag, bool]] = {}
    for lineage, since, so in (*one, *other):
        newest[lineage] = max((since, so), newest.get(lineage, (since, so)))
    return tuple((lineage, *found) for lineage, found in sorted(newest.items()))


def is_left(left: Left, lineage: Lineage, step: int) -> bool:
    """Whether a state of ``lineage`` is of a history that was left."""
    return any(name == lineage and step > after for name, after in left)


def remaining(
    stored: Mapping[NodeId, Iterable[Stored]], left: Left
) -> dict[NodeId, tuple[Stored, ...]]:
    """``stored`` without checkpoints of histories that were left."""

    def counts(manifest: Manifest) -> bool:
        return not is_left(left, manifest.lineage, manifest.step)

    return {
        node: tuple(each for each in items if counts(each.manifest))
        for node, items in stored.items()
    }
