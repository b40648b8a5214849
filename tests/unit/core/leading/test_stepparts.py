"""What a step of each rank is made of."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticd.core.leading.stepparts import step_seconds
from elasticd.types import STEP_PARTS

FAST = {"data": 0.1, "compute": 0.2, "reduce": 0.75, "update": 0.1, "waiting": 0.05}
SLOW = {"data": 0.1, "compute": 0.8, "reduce": 0.15, "update": 0.1, "checkpoint": 0.05}


def test_who_comes_first_waits_for_who_comes_last() -> None:
    fast, slow = step_seconds([FAST, SLOW])
    assert fast["reduce"] == slow["reduce"] == 0.15
    assert fast["waiting"] == pytest.approx(0.65) and slow["waiting"] == 0
    assert fast["compute"] == 0.2 and slow["checkpoint"] == 0.05


def test_who_tells_nothing_counts_nowhere() -> None:
    fast, silent, slow = step_seconds([FAST, {}, SLOW])
    assert silent == {} and [fast, slow] == step_seconds([FAST, SLOW])
    assert step_seconds([]) == [] and step_seconds([{}]) == [{}]


told = st.dictionaries(st.sampled_from(STEP_PARTS), st.floats(0, 10), min_size=1)


@given(st.lists(told, min_size=1, max_size=4))
def test_no_second_is_lost(each: list[dict[str, float]]) -> None:
    for said, found in zip(each, step_seconds(each), strict=True):
        assert tuple(found) == STEP_PARTS
        assert sum(found.values()) == pytest.approx(sum(said.values()), abs=1e-4)
