"""What may be removed, and what never."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

from elasticd.checkpoints.line import line, traced
from elasticd.checkpoints.manifest import Manifest, Shard
from elasticd.checkpoints.retention import (
    KeepBest,
    KeepEvery,
    KeepHours,
    KeepLast,
    last_ones,
    missing,
    outlived,
    prunable,
    superseded,
    useless,
)
from elasticd.checkpoints.summary import Row
from elasticd.types import NO_TAG, JobId, Lineage, NodeId, Point, Stamp


def at(lineage: str, step: int, parent: Point | None = None) -> Manifest:
    stamp = Stamp(f"{ord(lineage):04x}{step:04x}")
    return Manifest(
        *(JobId("job"), Lineage(lineage), parent, step, stamp, NO_TAG, step * 64, 8, 1),
        *((Shard(0, 1, "0" * 64),), ((NodeId("n"),),), "00", 0.0),
    )


def names(manifests: Sequence[Manifest]) -> list[str]:
    return [f"{m.lineage}{m.step}" for m in manifests]


def row(manifest: Manifest, *nodes: str, shards: int = 1) -> Row:
    held = tuple(NodeId(node) for node in nodes)
    return Row(manifest, (held,) * shards, held or (NodeId("n"),))


A = [at("A", step) for step in (0, 10, 20, 30, 40)]


def test_keeps_the_last_ones() -> None:
    assert names(prunable(A, [KeepLast(3)])) == ["A0", "A10"]
    assert names(prunable(reversed(A), [KeepLast(3)])) == ["A0", "A10"]
    assert prunable(A, [KeepLast(9)]) == []
    assert prunable([], [KeepLast(1)]) == []


def test_the_newest_stays_whatever_the_policies_say() -> None:
    assert names(prunable(A, [])) == ["A0", "A10", "A20", "A30"]
    assert names(prunable(A, [KeepLast(0)])) == ["A0", "A10", "A20", "A30"]


def test_policies_compose() -> None:
    assert names(prunable(A, [KeepLast(1), KeepEvery(20)])) == ["A10", "A30"]


def test_a_restored_lineage_counts_on_from_its_parent() -> None:
    restored = [at("B", step, A[3].point) for step in (35, 45)]
    # A40 lies beyond the fork, so it is no state of B; it stays as the newest of B's parent.
    assert names(prunable(A + restored, [KeepLast(3)])) == ["A0", "A10", "A20"]
    assert names(line(A + restored, Lineage("B"))) == ["A0", "A10", "A20", "A30", "B35", "B45"]


def test_a_parent_goes_once_nothing_kept_refers_to_it() -> None:
    b = [at("B", step, A[-1].point) for step in (50, 60)]
    c = [at("C", step, b[-1].point) for step in (70, 80)]
    assert names(prunable(A + b + c, [KeepLast(2)])) == [
        *("A0", "A10", "A20", "A30", "A40", "B50"),
    ]


def test_side_by_side_lineages_each_keep_their_own() -> None:
    b = [at("B", step, A[2].point) for step in (30, 40, 50)]
    c = [at("C", step, A[2].point) for step in (30, 40)]
    assert names(prunable(A[:3] + b + c, [KeepLast(2)])) == ["A0", "A10", "B30"]


def test_the_lineage_that_lost_goes_when_the_current_one_is_named() -> None:
    b = [at("B", step, A[2].point) for step in (30, 40, 50)]
    c = [at("C", step, A[2].point) for step in (30, 40)]
    gone = prunable(A[:3] + b + c, [KeepLast(2)], Lineage("C"))
    assert names(gone) == ["A0", "A10", "B30", "B40"], "B50 is further than all of C"
    c.append(at("C", 50, A[2].point))
    gone = prunable(A[:3] + b + c, [KeepLast(2)], Lineage("C"))
    assert names(gone) == ["A0", "A10", "B30", "C30", "B40", "B50"]


def test_a_current_lineage_without_a_checkpoint_endangers_nothing() -> None:
    assert names(prunable(A, [KeepLast(2)], Lineage("Z"))) == ["A0", "A10", "A20"]


def test_a_node_that_lacks_a_lineage_keeps_what_the_line_may_go_on_with() -> None:
    """It was away while B wrote its only checkpoint, and C went on from that."""
    b = at("B", 30, A[2].point)
    c = [at("C", step, b.point) for step in (40, 50)]
    assert names(prunable([*A[:3], b, *c], [KeepLast(3)], Lineage("C"))) == ["A0", "A10"]
    assert names(prunable([*A[:3], *c], [KeepLast(3)], Lineage("C"))) == ["A0", "A10"]
    assert names(prunable([*A[:3], *c], [KeepLast(2)], Lineage("C"))) == ["A0", "A10", "A20"]
    # Nor is anything kept for that which was left before.
    assert traced([*A[:3], *c], Lineage("C")) == (c, b.point)
    assert traced([*A[:3], b, *c], Lineage("C")) == ([*A[:3], b, *c], None)


def test_what_the_others_keep_is_missing_where_it_may_not_have_been_removed() -> None:
    b = replace(at("B", 30, A[2].point), holders=((NodeId("m"),),))
    c = [at("C", step, b.point) for step in (40, 50)]
    rows = [row(A[1], "m"), row(A[2], "m"), row(b, "m"), *(row(m, "n", "m") for m in c)]

    def lost(keep: int) -> list[str]:
        return names([found.manifest for found, _ in missing(rows, [KeepLast(keep)], NodeId("n"))])

    assert (lost(1), lost(2), lost(3)) == ([], [], ["A20"])


def test_lines_of_parents_that_are_gone_or_go_round_end() -> None:
    gone = Point(Lineage("gone"), 5, Stamp("00"))
    assert names(line([at("B", 7, gone)], Lineage("B"))) == ["B7"]
    assert names(line(A, Lineage("B"), A[1].point)) == ["A0", "A10"]
    round_trip = [at("B", 7, Point(Lineage("C"), 9, Stamp("00")))]
    round_trip += [at("C", 8, Point(Lineage("B"), 9, Stamp("00")))]
    assert names(line(round_trip, Lineage("B"))) == ["B7", "C8"]
    grandchild = [at("B", 30, A[2].point), at("C", 15, Point(Lineage("B"), 10, Stamp("00")))]
    assert names(line(A + grandchild, Lineage("C"))) == ["A0", "A10", "C15"]


def test_the_best_is_kept_by_its_figure() -> None:
    history = [
        replace(A[0], step=step, metric=metric)
        for step, metric in ((1, 0.5), (2, 0.2), (3, None), (4, float("nan")), (5, 0.2), (6, 0.9))
    ]
    assert [m.step for m in KeepBest().keeps(history)] == [2]
    assert [m.step for m in KeepBest(highest=True).keeps(history)] == [6]
    assert list(KeepBest().keeps(history[2:4])) == []


def test_the_best_is_the_state_that_was_measured() -> None:
    """At steps 200, 400 and so on; the checkpoints between have the last figure."""
    measured = {200: 0.2, 400: 0.3, 600: 0.25}
    kept: list[Manifest] = []
    for step in range(50, 801, 50):
        metric = measured.get(step // 200 * 200)
        kept.append(replace(A[0], step=step, stamp=Stamp(f"{step:x}"), metric=metric))
        gone = prunable(kept, [KeepLast(2), KeepBest()])
        kept = [m for m in kept if m not in gone]
    assert [m.step for m in kept] == [200, 750, 800]


def test_one_of_each_so_many_hours() -> None:
    history = [
        replace(A[0], step=step, created_seconds=hours * 3600.0)
        for step, hours in ((1, 0.0), (2, 0.5), (3, 1.0), (4, 1.9), (5, 2.2))
    ]
    assert [m.step for m in KeepHours(1.0).keeps(history)] == [1, 3, 5]


@pytest.mark.parametrize("first", [False, True])
def test_a_checkpoint_of_a_clock_that_was_ahead_does_not_end_the_hours(first: bool) -> None:
    future = 10 * 365 * 24.0
    hours = [0.0, 0.5, 1.0, 1.5, 2.0]
    hours.insert(0 if first else 2, future)
    history = [replace(A[0], step=n, created_seconds=h * 3600) for n, h in enumerate(hours)]
    kept = [m.created_seconds / 3600 for m in KeepHours(1.0).keeps(history)]
    assert [h for h in kept if h != future] == [0.0, 1.0, 2.0]


def test_clocks_that_differ_a_little_keep_no_more_by_the_hour() -> None:
    """Leaders take turns, and one of them is half a minute behind."""
    history = [
        replace(A[0], step=n, created_seconds=n * 10.0 - (30.0 if n % 2 else 0.0))
        for n in range(99)
    ]
    assert [m.step for m in KeepHours(1.0).keeps(history)] == [0]


def test_only_what_is_as_safe_supersedes() -> None:
    def gone(*rows: Row, announced: float = math.inf) -> list[str]:
        return names([row.manifest for row in superseded(rows, announced)])

    both = [row(m, "n", "o") for m in A]
    assert gone(*both[:3]) == ["A0", "A10"]
    # The newest is out of reach, or on fewer nodes.
    assert gone(*both[:2], row(A[2])) == ["A0"]
    assert gone(*both[:2], row(A[2], "n")) == ["A0"]
    assert gone(both[0], row(A[1], "n"), row(A[2], "n")) == ["A10"]
    assert gone(row(A[0], "n"), row(A[1], "o")) == []
    # What is out of reach itself goes for anything; of a world of one that stays so, too.
    assert gone(row(A[0]), row(A[1], "n")) == ["A0"]
    assert gone(row(A[0], "n"), row(A[1], "n")) == ["A0"]
    # Another line's say nothing.
    assert gone(both[0], row(at("B", 30), "n", "o")) == []
    # Of a checkpoint that lacks a part more may come, until a newer one is announced.
    m = replace(A[1], holders=((NodeId("n"), NodeId("o")),))
    rows = [both[0], row(m, "n"), row(A[2], "n", "o")]
    assert [gone(*rows, announced=step) for step in (-1, 10, 20)] == [
        ["A0"],
        ["A0"],
        ["A0", "A10"],
    ]


def test_what_an_absent_node_may_complete_is_not_useless() -> None:
    whole = row(A[2], "n", "o")
    m = replace(A[1], holders=((NodeId("n"), NodeId("o")),))
    broken = Row(m, ((),), (NodeId("n"),))
    assert useless([broken, whole], {NodeId("n"), NodeId("o")}, math.inf) == [broken]
    assert useless([broken, whole], {NodeId("n")}, math.inf) == []
    # Nor is what they may complete themselves, before a newer one is announced.
    both = {NodeId("n"), NodeId("o")}
    assert [useless([broken, whole], both, step) for step in (-1, 10, 20)] == [[], [], [broken]]
    # Nor is anything above the newest that is whole.
    above = Row(replace(m, step=99), ((),), (NodeId("n"),))
    assert useless([whole, above], {NodeId("n"), NodeId("o")}, math.inf) == []


def test_a_node_may_remove_what_a_checkpoint_that_it_alone_has_outlives() -> None:
    """Step 10 of A was never whole, but one node has its manifest: it keeps that as the newest of
    the parent, others keep step 0."""
    old, never_whole = A[0], A[1]
    restored = [at("B", step, old.point) for step in (20, 30, 40)]
    rows = [row(old, "n", "m"), *(row(m, "n", "m") for m in restored)]
    torn = Row(never_whole, ((NodeId("n"),), ()), (NodeId("n"),))
    at_n = outlived([*rows, torn], [KeepLast(3)], NodeId("n"))
    at_m = outlived([*rows, torn], [KeepLast(3)], NodeId("m"))
    assert [names([found.manifest]) for found in at_n] == [["A0"]]
    assert at_m == []


def test_what_another_lineage_has_passed_is_the_last_of_nothing() -> None:
    """A20 was left when the job went back to A10 and on as B: it may be removed by hand."""
    b = [at("B", step, A[1].point) for step in (15, 30)]
    assert names(last_ones(A[:3])) == ["A20"]
    assert names(last_ones([*A[:3], b[0]])) == ["A20", "B15"]
    assert names(last_ones([*A[:3], *b])) == ["B30"]
