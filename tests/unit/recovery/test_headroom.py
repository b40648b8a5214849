"""What is given up while memory runs short, and what isn't."""

from __future__ import annotations

from elasticd.recovery.headroom import (
    FORGIVEN_SECONDS,
    LONGEST_QUIET_SECONDS,
    QUIET_SECONDS,
    Headroom,
)

GIB = 1 << 30


def test_cheapest_first_and_only_while_headroom_falls() -> None:
    headroom = Headroom()
    assert headroom.sign(10 * GIB, has_spare=True) == "spare"
    assert headroom.sign(10 * GIB, has_spare=False) is None, "it holds"
    assert headroom.sign(8 * GIB, has_spare=False) == "caches"
    assert headroom.sign(79 * GIB // 10, has_spare=False) is None
    assert headroom.sign(7 * GIB, has_spare=False) == "recompute"
    assert headroom.sign(1 * GIB, has_spare=False) is None, "grains are never halved for it"


def test_without_a_spare_caches_are_first() -> None:
    assert Headroom().sign(GIB, has_spare=False) == "caches"


def test_it_begins_again_once_memory_was_enough() -> None:
    headroom = Headroom()
    for left in (9, 5, 1):
        headroom.sign(left * GIB, has_spare=True)
    headroom.forget()
    assert headroom.sign(5 * GIB, has_spare=True) == "spare"


def test_a_mere_warning_costs_no_speed_however_long_it_lasts() -> None:
    headroom = Headroom()
    lefts = [20 * GIB * 9**n // 10**n for n in range(10)]
    gifts = [headroom.sign(left, has_spare=True, mild=True) for left in lefts]
    assert gifts == ["spare", "caches", *[None] * 8]
    assert headroom.sign(lefts[1], has_spare=False) == "recompute", "it isn't a warning any more"


def test_what_runs_short_again_and_again_is_given_up_for_longer_each_time() -> None:
    headroom, now = Headroom(), 5.0
    quiet = [headroom.quiet_seconds(now, begins=begins) for begins in (True, False, False, True)]
    assert quiet == [QUIET_SECONDS, QUIET_SECONDS, QUIET_SECONDS, 2 * QUIET_SECONDS]
    for _ in range(100):
        now += 2 * LONGEST_QUIET_SECONDS - 1
        longest = headroom.quiet_seconds(now, begins=True)
    assert longest == LONGEST_QUIET_SECONDS
    now += FORGIVEN_SECONDS + 1
    assert headroom.quiet_seconds(now, begins=True) == QUIET_SECONDS
