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
    last = last_level(64, micro)
    assert cut(64, micro, last).micro == 1
    assert micro == 1 or cut(64, micro, last - 1).micro > 1


def test_batch_statistics_need_two_samples() -> None:
    assert cut(16, 8, last_level(16, 8, least=2)).micro == 2
    assert cut(16, 2, last_level(16, 2, least=2)).micro == 2
    assert cut(16, 6, last_level(16, 6, least=2)).micro == 6, "halves of 3 leave a grain of 1"


def test_a_halving_says_what_it_does_to_exactness() -> None:
    assert "4 instead of 8 samples" in describe(64, 8, 3)
    assert "differs in its last bits" in describe(64, 8, 3)
    assert "keeps its bits" in describe(64, 8, 1)
