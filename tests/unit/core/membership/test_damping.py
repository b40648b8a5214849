"""Who comes and goes is let in more and more slowly, and forgiven with time."""

from __future__ import annotations

from elasticd.core.membership.damping import FORGET_HALF_SECONDS, LONGEST_STEADY_SECONDS, Damping

from .peers import A, B


def waits(damping: Damping, times: int, at: float = 100.0) -> list[float]:
    return [damping.flapped(A, at) for _ in range(times)]


def test_the_first_flap_is_free_and_each_further_one_doubles_the_wait() -> None:
    assert waits(Damping(), 5) == [0.0, 0.5, 1.0, 2.0, 4.0]


def test_no_wait_is_longer_than_the_longest() -> None:
    assert waits(Damping(), 12)[-1] == LONGEST_STEADY_SECONDS


def test_it_may_enter_once_it_was_steady_for_so_long() -> None:
    damping = Damping()
    waits(damping, 3)
    assert damping.admit_at(A) == 101.0 and damping.admit_at(B) == 0.0


def test_flaps_are_forgotten_by_halves() -> None:
    damping = Damping()
    waits(damping, 4)
    assert damping.flapped(A, 100.0 + FORGET_HALF_SECONDS) == 1.0, "as after two"
    damping = Damping()
    waits(damping, 4)
    assert damping.flapped(A, 100.0 + 4 * FORGET_HALF_SECONDS) == 0.0


def test_another_run_of_its_daemon_has_not_flapped() -> None:
    damping = Damping()
    waits(damping, 4)
    damping.restarted(A)
    assert damping.admit_at(A) == 0.0 and damping.flapped(A, 100.0) == 0.0
