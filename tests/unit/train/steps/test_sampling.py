from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticd.train.steps.sampling import Batches, Permutation, indices


@given(st.integers(1, 3000), st.integers(0, 2**63 - 1), st.integers(0, 50))
def test_a_permutation_is_a_bijection(length: int, seed: int, epoch: int) -> None:
    found = Permutation(length, seed, epoch)(np.arange(length, dtype=np.uint64))
    assert sorted(found.tolist()) == list(range(length))


@given(st.integers(2**31, 2**50), st.data())
def test_large_datasets_stay_in_range(length: int, data: st.DataObject) -> None:
    positions = data.draw(
        st.lists(st.integers(0, length - 1), min_size=1, max_size=20, unique=True)
    )
    found = Permutation(length, 1, 0)(np.array(positions, dtype=np.uint64)).tolist()
    assert len(set(found)) == len(found) and all(0 <= index < length for index in found)


def test_seed_and_epoch_change_the_order() -> None:
    positions = np.arange(100, dtype=np.uint64)
    orders = {tuple(Permutation(100, s, e)(positions).tolist()) for s in (0, 1) for e in (0, 1)}
    assert len(orders) == 4


def test_the_order_never_changes() -> None:
    # A running job must not be reshuffled by a new release.
    assert Permutation(10, 5, 2)(np.arange(10, dtype=np.uint64)).tolist() == PINNED


PINNED = [0, 2, 6, 4, 7, 3, 5, 1, 8, 9]


@given(st.integers(1, 40), st.integers(1, 30), st.data())
def test_every_sample_once_an_epoch(length: int, global_size: int, data: st.DataObject) -> None:
    micro = data.draw(st.integers(1, global_size))
    batches = Batches(global_size, micro)
    steps = -(-3 * length // global_size)
    stream = [
        index
        for step in range(1, steps + 1)
        for grain in range(batches.grains)
        for index in indices(batches.positions(step, grain), length, seed=3)
    ]
    for epoch in range(3):
        assert sorted(stream[epoch * length : (epoch + 1) * length]) == list(range(length))


def test_the_last_grain_may_be_smaller() -> None:
    batches = Batches(10, 4)
    assert [len(batches.positions(2, grain)) for grain in range(3)] == [4, 4, 2]
    assert batches.positions(2, 2) == range(18, 20)


@pytest.mark.parametrize(("step", "grain"), [(0, 0), (1, 3), (1, -1)])
def test_no_such_grain(step: int, grain: int) -> None:
    with pytest.raises(ValueError, match="no grain"):
        Batches(10, 4).positions(step, grain)
