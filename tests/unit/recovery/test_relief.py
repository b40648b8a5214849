"""The levels of relief."""

from __future__ import annotations

import pytest

from elasticd.recovery.relief import cut, describe, last_level


@pytest.mark.parametrize(
    ("micro", "level", "expected"),
    [(8, 0, 8), (8, 1, 8), (8, 2, 8), (8, 3, 4), (8, 4, 2), (8, 5, 1), (8, 9, 1), (5, 3, 2)],
)
def test_halving(micro: int, level: int, expected: int) -> None:
    assert cut(64, micro, level).micro == expected


def test_the_global_batch_stays() -> None:
    for level in range(8):
        made = cut(50, 12, level)
        assert (made.grains - 1) * made.micro < 50 <= made.grains * made.micro


@pytest.mark.parametrize("micro", [1, 2, 3, 7, 8, 64])
def test_the_last_level_is_one_sample(micro: int) -> None:
    assert cut(64, micro, last_level(micro)).micro == 1
    assert micro == 1 or cut(64, micro, last_level(micro) - 1).micro > 1


def test_a_halving_says_what_it_does_to_exactness() -> None:
    assert "4 instead of 8 samples" in describe(64, 8, 3)
    assert "differs in its last bits" in describe(64, 8, 3)
    assert "keeps its bits" in describe(64, 8, 1)
