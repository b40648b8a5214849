"""How long a leader waits before it tries again what has failed."""

from __future__ import annotations

import pytest

from elasticd.core.context import Context
from elasticd.core.leading.tries import Tries
from tests.unit.core.leading.bench import ME


@pytest.fixture
def tries() -> Tries:
    return Tries(Context(ME, lambda: "0000", now=50.0))


def pause(tries: Tries) -> float:
    """Seconds until something is tried again; 0: at once."""
    return max(0.0, tries.soonest - tries.ctx.now)


def test_nothing_is_waited_for_at_first(tries: Tries) -> None:
    assert pause(tries) == 0.0 and not tries.resting


def test_a_checkpoint_that_is_not_read_is_tried_ever_more_rarely(tries: Tries) -> None:
    pauses = []
    for _ in range(8):
        tries.not_read()
        pauses.append(pause(tries))
    first = tries.ctx.timing.retry_seconds
    assert pauses == [first * times for times in (1, 2, 4, 8, 16, 32, 32, 32)]


def test_a_world_that_has_formed_makes_the_next_pause_short_again(tries: Tries) -> None:
    for _ in range(4):
        tries.not_read()
    tries.succeeded()
    tries.ctx.now = tries.soonest
    tries.not_read()
    assert pause(tries) == tries.ctx.timing.retry_seconds


def test_a_members_word_ends_the_wait_for_a_plan_and_no_other_one(tries: Tries) -> None:
    tries.no_plan()
    assert pause(tries) == tries.ctx.timing.retry_seconds
    tries.heard()
    assert pause(tries) == 0.0
    tries.not_read()
    tries.rest(30.0)
    tries.heard()
    assert pause(tries) == 30.0 and tries.resting


def test_other_members_end_every_wait(tries: Tries) -> None:
    tries.no_plan()
    tries.not_read()
    tries.rest(30.0)
    tries.reset()
    assert pause(tries) == 0.0 and not tries.resting


def test_a_view_does_not_make_the_next_pause_shorter(tries: Tries) -> None:
    """Nodes that come and go would have a checkpoint read again and again."""
    tries.not_read()
    tries.reset()
    tries.not_read()
    assert pause(tries) == 2 * tries.ctx.timing.retry_seconds


def test_the_longest_wait_counts_and_each_has_its_deadline(tries: Tries) -> None:
    tries.no_plan()
    tries.rest(8.0)
    assert pause(tries) == 8.0
    assert {50.0 + tries.ctx.timing.retry_seconds, 58.0} <= {*tries.deadlines()}
    tries.ctx.now = 58.0
    assert not tries.resting
