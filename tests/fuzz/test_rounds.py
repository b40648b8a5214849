"""``make soak SOAK=fuzz`` sends all of its frames."""

from __future__ import annotations

from tests.fuzz.soak import ROUND, WARM_UP, next_round


def test_all_frames_are_sent_though_the_time_is_over() -> None:
    rounds, sent = 0, 0
    while count := next_round(sent, 5 * ROUND, late=True):
        sent, rounds = sent + count, rounds + 1
    assert (sent, rounds) == (5 * ROUND, 5)


def test_more_are_sent_while_there_is_time() -> None:
    assert next_round(5 * ROUND, 5 * ROUND, late=False) == ROUND


def test_no_round_is_too_short_to_warm_up() -> None:
    assert next_round(ROUND - 1, ROUND, late=True) > WARM_UP
