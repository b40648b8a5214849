from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elasticd.recovery import tree
from elasticd.train.steps.accumulate import GrainSums, add
from elasticd.train.steps.layout import Vector
from elasticd.types import Range


def vectors(grains: int) -> list[Vector]:
    rng = np.random.default_rng(grains)
    scale = 10.0 ** rng.integers(-6, 6, size=(grains, 5))
    rows = (rng.normal(size=(grains, 5)) * scale).astype(np.float32)
    return [[mx.array(row[:2]), mx.array(row[2:])] for row in rows]


def bits(vector: Vector) -> list[bytes]:
    return [bytes(memoryview(piece)) for piece in vector]  # type: ignore[arg-type]


def compute(sums: GrainSums, given: list[Vector], limit: int | None = None) -> list[int]:
    done: list[int] = []
    while (missing := sums.missing()) and len(done) != limit:
        sums.add(missing[0], given[missing[0]])
        done.append(missing[0])
    return done


@settings(max_examples=60)
@given(st.integers(1, 20), st.data())
def test_shares_change_no_bit_even_halfway(grains: int, data: st.DataObject) -> None:
    given_vectors = vectors(grains)
    alone = GrainSums(grains)
    alone.aim([(0, grains)])
    compute(alone, given_vectors)
    expected = alone.total()
    assert expected is not None

    ranks = [GrainSums(grains) for _ in range(3)]
    for limit in (data.draw(st.integers(0, grains)), None):  # the world changes once, halfway
        owners = data.draw(st.lists(st.integers(0, 2), min_size=grains, max_size=grains))
        for rank, sums in enumerate(ranks):
            sums.aim([(g, g + 1) for g, owner in enumerate(owners) if owner == rank])
            compute(sums, given_vectors, limit)
    parts: dict[Range, Vector] = {}
    for sums in ranks:
        parts |= sums.parts()
    assert bits(tree.finish(parts, (0, grains), add)) == bits(expected)


def test_what_was_computed_stays_when_a_share_grows() -> None:
    given_vectors = vectors(8)
    sums = GrainSums(8)
    sums.aim([(0, 2), (5, 6)])
    assert compute(sums, given_vectors) == [0, 1, 5]
    sums.aim([(0, 4), (5, 8)])
    assert compute(sums, given_vectors) == [2, 3, 6, 7]
    assert set(sums.parts()) == {(0, 4), (5, 6), (6, 8)}


def test_a_sum_that_can_not_be_cut_is_computed_anew() -> None:
    given_vectors = vectors(8)
    sums = GrainSums(8)
    sums.aim([(0, 4)])
    compute(sums, given_vectors)
    sums.aim([(0, 2), (6, 7)])
    assert compute(sums, given_vectors) == [0, 1, 6]


def test_an_unfinished_share_has_no_parts() -> None:
    sums = GrainSums(4)
    sums.aim([(0, 2)])
    with pytest.raises(ValueError, match="missing"):
        sums.parts()
    sums.aim([])
    assert sums.parts() == {} and sums.total() is None
