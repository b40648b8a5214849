"""The levels of relief."""

from __future__ import annotations

import pytest

from elasticd.recovery.relief import (
    Shortage,
    cut,
    describe,
    describe_back,
    last_level,
    next_level,
    room_text,
    shortage_of,
)


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
    assert "4 instead of 8 samples" in describe(64, 8, 2, 3)
    assert "differs in its last bits" in describe(64, 8, 2, 3)
    assert describe(64, 8, 0, 1).endswith("keeps its bits")
    assert "keeps its bits (unless" in describe(64, 8, 1, 2)


def test_several_levels_at_once_are_all_told() -> None:
    text = describe(64, 8, 0, 4)
    for part in ("no spare trainers", "computed again", "2 instead of 8 samples", "last bits"):
        assert part in text


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("RuntimeError: [malloc] Unable to allocate 1073741824 bytes.", 1 << 30),
        ("[metal::malloc] Attempting to allocate 4096 bytes which is greater than", 4096),
        ("MemoryError: Unable to allocate 192. MiB for an array with shape (8,)", 192 << 20),
        ("MemoryError: Unable to allocate 1.5 GiB for an array", 3 << 29),
        ("std::bad_alloc", None),
    ],
)
def test_what_was_asked_for_is_read_from_the_text(text: str, asked: int | None) -> None:
    found = shortage_of(f"{text} {room_text(1000)}")
    assert (found.asked_bytes, found.room_bytes) == (asked, 1000)
    assert shortage_of(text).room_bytes is None


def test_numpy_s_own_error_is_of_the_batch() -> None:
    assert shortage_of("MemoryError: Unable to allocate 192. MiB for an array").batch
    assert not shortage_of("RuntimeError: [malloc] Unable to allocate 10 bytes.").batch


BATCH = Shortage(400, 100, batch=True)
LITTLE, MUCH, VERY = Shortage(90, 100), Shortage(150, 100), Shortage(900, 100)


@pytest.mark.parametrize(
    ("level", "shortage", "again", "expected"),
    [
        (0, Shortage(), False, 1),
        (0, LITTLE, False, 1),
        (0, MUCH, False, 2),
        (0, VERY, False, 2),
        (1, Shortage(), False, 2),
        (1, Shortage(), True, 3),
        (1, VERY, True, 2),
        (2, Shortage(), True, 3),
        (2, MUCH, True, 3),
        (2, VERY, True, 4),
        (4, VERY, True, 5),
        (0, BATCH, False, 4),
        (0, Shortage(90, 100, batch=True), False, 1),
    ],
)
def test_levels_that_will_not_do_are_skipped(
    level: int, shortage: Shortage, again: bool, expected: int
) -> None:
    assert next_level(level, 5, [shortage], again) == expected


def test_what_is_given_back_is_told_with_the_samples_if_they_are_more() -> None:
    assert describe_back(64, 8, 2, 0).endswith("what was given up is given back")
    assert describe_back(64, 8, 4, 0).endswith("is given back; 8 instead of 2 samples at once")
