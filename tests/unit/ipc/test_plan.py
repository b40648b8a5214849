from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticd.errors import ProtocolError
from elasticd.ipc.memoryfile import PAYLOAD_FLOATS
from elasticd.ipc.plan import GATHERED_FLOATS, ChunkPlan, VectorLayout
from elasticd.recovery import tree

HALVES = ChunkPlan(4, (((0, 2),), ((2, 4),)))


@given(st.integers(0, 5 * PAYLOAD_FLOATS), st.integers(2, 16), st.sampled_from(["exact", "fast"]))
def test_chunks_make_the_vector_and_fit(length: int, ranks: int, reduction: str) -> None:
    cuts = [3 * rank for rank in range(ranks + 1)]
    parts = tuple(tree.cover([(cuts[r], cuts[r + 1])], cuts[-1]) for r in range(ranks))
    layout = VectorLayout.of(reduction, length, ChunkPlan(cuts[-1], parts))
    bounds = [layout.bounds(bucket) for bucket in range(layout.chunks)]
    assert [0, *(end for _, end in bounds)] == [*(start for start, _ in bounds), length]
    assert all(start < end for start, end in bounds)
    assert layout.width * layout.chunk <= PAYLOAD_FLOATS
    assert ranks * layout.width * layout.chunk <= GATHERED_FLOATS
    assert layout.width == (max(map(len, parts)) if reduction == "exact" else 1)


def test_a_layout_survives_the_journey_to_the_reducer() -> None:
    layout = VectorLayout.of("exact", 12345, HALVES)
    assert VectorLayout.decode(layout.encode(), "exact") == layout
    others = [
        VectorLayout.of("fast", 12345, HALVES),
        VectorLayout.of("exact", 12346, HALVES),
        VectorLayout.of("exact", 12345, ChunkPlan(4, (((2, 4),), ((0, 2),)))),
    ]
    assert len({layout.digest, *(other.digest for other in others)}) == 4


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x00", b"\x93\x01\x02\x03", b"\x93\x01\x01\x90"])
def test_what_is_no_plan_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        VectorLayout.decode(data, "exact")


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ((((0, 2),), ()), "in no part"),
        ((((0, 4),), ((2, 4),)), "overlap"),
        ((((0, 4),), ((0, 4),)), "twice"),
        (((), ()), "in no part"),
    ],
)
def test_parts_that_do_not_make_the_batch_are_refused(
    parts: tuple[tuple[tuple[int, int], ...], ...], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        VectorLayout.of("exact", 10, ChunkPlan(4, parts))


def test_too_many_parts_are_refused() -> None:
    every_other = tuple((grain, grain + 1) for grain in range(0, 40_000, 2))
    rest = tuple((grain, grain + 1) for grain in range(1, 40_000, 2))
    with pytest.raises(ValueError, match="do not fit"):
        VectorLayout.of("exact", 10, ChunkPlan(40_000, (every_other, rest)))
