"""Which checkpoints may go. Pure: small policies over manifests; each says what it keeps."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from elasticd.checkpoints.line import line, traced
from elasticd.checkpoints.manifest import Manifest
from elasticd.checkpoints.summary import Row
from elasticd.settings.job import CheckpointSettings
from elasticd.types import Lineage, NodeId, Point


class Policy(Protocol):
    def keeps(self, history: Sequence[Manifest]) -> Iterable[Manifest]:
        """Those to keep of one line of consistent checkpoints, oldest first, never empty."""


@dataclass(frozen=True, slots=True)
class KeepLast:
    """The newest ``count``."""

    count: int

    def keeps(self, history: Sequence[Manifest]) -> Iterable[Manifest]:
        return history[-self.count :] if self.count > 0 else ()


@dataclass(frozen=True, slots=True)
class KeepEvery:
    """Those whose step is a multiple of ``steps``."""

    steps: int

    def keeps(self, history: Sequence[Manifest]) -> Iterable[Manifest]:
        return [m for m in history if m.step % self.steps == 0]


@dataclass(frozen=True, slots=True)
class KeepHours:
    """The first of each ``hours``, counted from the oldest that is there, by the clocks of the
    nodes that wrote them.

    One that is further than that from all others kept so is kept, be it before or after them: a
    clock may have been ahead for a while.
    """

    hours: float

    def keeps(self, history: Sequence[Manifest]) -> Iterable[Manifest]:
        kept: list[Manifest] = []
        for manifest in history:
            at = manifest.created_seconds
            if all(abs(at - other.created_seconds) >= self.hours * 3600 for other in kept):
                kept.append(manifest)
        return kept


@dataclass(frozen=True, slots=True)
class KeepBest:
    """The one with the lowest metric, or the highest. Of equals the oldest: a metric that is
    measured now and then stands in later checkpoints, too, whose states it isn't of."""

    highest: bool = False

    def keeps(self, history: Sequence[Manifest]) -> Iterable[Manifest]:
        known = [m for m in history if m.metric is not None and math.isfinite(m.metric)]
        sign = 1.0 if self.highest else -1.0
        return [max(known, key=lambda m: sign * (m.metric or 0.0))] if known else []


def policies_of(spec: CheckpointSettings | None, given: Mapping[str, float]) -> list[Policy]:
    """Policies by the keys of job.toml; ``given`` wins over ``spec``. The newest always stays."""
    wanted: dict[str, float] = {"keep": 3, "keep_every_steps": 0, "keep_hours": 0}
    if spec is not None:
        wanted |= {key: getattr(spec, key) for key in wanted}
    wanted |= given
    policies: list[Policy] = [KeepLast(int(wanted["keep"]))]
    if wanted["keep_every_steps"]:
        policies.append(KeepEvery(int(wanted["keep_every_steps"])))
    if wanted["keep_hours"]:
        policies.append(KeepHours(wanted["keep_hours"]))
    if spec is not None and spec.keep_best:
        policies.append(KeepBest(spec.best == "highest"))
    return policies


def prunable(
    manifests: Iterable[Manifest], policies: Iterable[Policy], current: Lineage | None = None
) -> list[Manifest]:
    """The consistent checkpoints of one job that may be removed, oldest first.

    Every policy sees one line at a time: that of ``current``, or without it (also when nothing of
    it is stored) that of every lineage in which no other continues. Where the line of ``current``
    breaks off, since nothing is known of the lineage from which it came, it may go on with any of
    the others up to there: they count as its own. What any policy keeps stays; so
    do the newest of each such line, the newest of a lineage that a checkpoint kept so names as its
    parent, and the newest of any other line that is further than the newest of ``current``.
    """
    manifests, policies = list(manifests), list(policies)
    kept: dict[Point, Manifest] = {}
    for history in _lines(manifests, current):
        chosen = [m for policy in policies for m in policy.keeps(history)]
        kept |= {m.point: m for m in (*chosen, history[-1])}
    reached = max((m.step for m in kept.values()), default=-1)
    for history in _lines(manifests, None):
        if history[-1].step > reached:
            kept[history[-1].point] = history[-1]
    parents = {m.parent.lineage for m in kept.values() if m.parent is not None}
    for lineage in sorted(parents):
        own = [m for m in manifests if m.lineage == lineage]
        if own:
            newest = max(own, key=lambda m: (m.step, m.stamp))
            kept[newest.point] = newest
    gone = [m for m in manifests if m.point not in kept]
    return sorted(gone, key=lambda m: (m.step, m.lineage, m.stamp))


def overtaken(
    manifests: Iterable[Manifest], policies: Iterable[Policy], newest: int, current: Lineage
) -> list[Manifest]:
    """What a node removes, oldest first, when it is told that the checkpoint of step ``newest`` is
    consistent: a later one, of which it may know, isn't yet."""
    return prunable([m for m in manifests if m.step <= newest], policies, current)


def last_ones(manifests: Iterable[Manifest]) -> list[Manifest]:
    """The newest of each line: none that is known goes on further, be it in a lineage that began
    before it."""
    known = list(manifests)
    gone = prunable(known, [KeepLast(1)])
    passed = [(m.parent, m.step) for m in known if m.parent is not None]

    def is_passed(m: Manifest) -> bool:
        return any(p.lineage == m.lineage and p.step < m.step < reached for p, reached in passed)

    return [m for m in known if m not in gone and not is_passed(m)]


def superseded(rows: Iterable[Row], announced: float) -> list[Row]:
    """Those that a newer checkpoint of their line makes needless, oldest first: every shard of it
    is within reach, and the loss of any one node leaves it so where it leaves the older one so.

    A manifest alone doesn't say that: a node has it before the others do. Nor does it say so while
    more may come of the older one: its leader would announce it, and count on what was removed.
    That is over once a newer one is announced; ``announced`` is the step of the newest such.
    """
    rows = list(rows)

    def stands_in(new: Row, old: Row) -> bool:
        return new.consistent and (new.alone <= old.alone or not old.consistent)

    def is_needless(old: Row) -> bool:
        newer = [row.manifest for row in rows if row is not old and stands_in(row, old)]
        return old.manifest in prunable([old.manifest, *newer], [KeepLast(1)])

    return [row for row in _settled(rows, announced) if is_needless(row)]


def removed_from(row: Row, node: NodeId) -> tuple[NodeId, ...]:
    """Where ``node`` has a superseded checkpoint removed for the sake of its own disk: what nobody
    can restore without its part is of no use to the others either."""
    if node not in row.nodes:
        return ()
    return (node, *(n for n in row.nodes if n != node and node in row.alone))


def outlived(rows: Iterable[Row], policies: Collection[Policy], node: NodeId) -> list[Row]:
    """Those that ``node`` may have removed: that no policy keeps beside the consistent ones and
    those of which it alone may have the manifest, or in the line of its newest beside what it has
    itself. Each node removes its part by itself, one of them perhaps later than the others."""
    rows = list(rows)
    own = {row.manifest for row in rows if node in row.nodes}
    whole = {row.manifest for row in rows if row.consistent} | own
    newest = max(own, key=lambda m: (m.generation, m.step), default=None)

    def is_outlived(m: Manifest) -> bool:
        if m in prunable({*whole, m}, policies):
            return True
        beside = {*own, m}
        return newest is not None and m in overtaken(beside, policies, newest.step, newest.lineage)

    return [row for row in rows if is_outlived(row.manifest)]


def missing(
    rows: Iterable[Row], policies: Collection[Policy], node: NodeId
) -> list[tuple[Row, int]]:
    """Shards, by checkpoint and number, that ``node`` was to hold, has not, and may not have
    removed."""
    rows = list(rows)
    gone = outlived(rows, policies, node)
    return [
        (row, index)
        for row in rows
        if node in row.nodes or row not in gone
        for index in row.manifest.held_by(node)
        if node not in row.present[index]
    ]


def useless(rows: Iterable[Row], answered: Collection[NodeId], announced: float) -> list[Row]:
    """Those below the newest consistent one that no node can complete: of the nodes that
    ``answered`` nobody has some shard, and no other is named by the manifest. A node may have it
    that has not stored the manifest yet: ``announced`` as for :func:`superseded`."""
    rows = list(rows)
    newest = max((row.manifest.step for row in rows if row.consistent), default=-1)
    return [
        row
        for row in _settled(rows, announced)
        if not row.consistent and row.manifest.step < newest and not set(row.absent) - set(answered)
    ]


def _settled(rows: Iterable[Row], announced: float) -> list[Row]:
    """Those that no leader can announce later with more than there is of them now."""
    return [row for row in rows if row.manifest.step < announced or row.whole]


def _lines(manifests: Sequence[Manifest], current: Lineage | None) -> list[list[Manifest]]:
    if current is not None and any(m.lineage == current for m in manifests):
        known, end = traced(manifests, current)
        older = [m for m in manifests if end and m.step <= end.step and m not in known]
        return [[*sorted(older, key=lambda m: (m.step, m.stamp)), *known]]
    continued = {m.parent.lineage for m in manifests if m.parent is not None}
    ends = sorted({m.lineage for m in manifests} - continued)
    return [line(manifests, lineage) for lineage in ends]
