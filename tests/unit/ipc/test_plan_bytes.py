"""What a plan says of the bytes that a reduction moves."""

from __future__ import annotations

import pytest

from elasticd.ipc.plan import EXACT, FAST, ChunkPlan

WHOLE = ((0, 4),)
HALVES = (((0, 2),), ((2, 4),))
UNEVEN = (((0, 1), (2, 3)), ((1, 2),), ())


@pytest.mark.parametrize(
    ("parts", "reduction", "expected"),
    [
        ((WHOLE,), EXACT, 0),
        (HALVES, EXACT, 400),
        (HALVES, FAST, 400),
        (UNEVEN, EXACT, 2 * 2 * 400),
        (UNEVEN, FAST, 2 * 2 * 400 // 3),
    ],
)
def test_bytes_sent_by_each_rank(
    parts: tuple[tuple[tuple[int, int], ...], ...], reduction: str, expected: int
) -> None:
    assert ChunkPlan(4, parts).bytes_sent(reduction, 100) == expected


MIXED = (((0, 1), (2, 3)), ((1, 2),), ((3, 4),))
QUARTERS = (((0, 1),), ((1, 2),), ((2, 3),), ((3, 4),))


@pytest.mark.parametrize(
    ("parts", "reduction", "sections"),
    [(HALVES, EXACT, 2), (QUARTERS, EXACT, 8), (QUARTERS, FAST, 6), (MIXED, EXACT, 6)],
)
def test_bytes_sent_where_sums_are_made_along_the_ring(
    parts: tuple[tuple[tuple[int, int], ...], ...], reduction: str, sections: int
) -> None:
    plan, length = ChunkPlan(4, parts), 12 << 20
    assert plan.bytes_sent(reduction, length, walks=True) == sections * 4 * length // len(parts)
    assert plan.bytes_sent(reduction, 100, walks=True) == plan.bytes_sent(reduction, 100)
