from __future__ import annotations

import signal
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticd.supervision.machine import (
    Event,
    Exited,
    Signal,
    Spawn,
    StartUnit,
    State,
    Status,
    StopUnit,
    Timer,
    Transition,
    UnitReady,
    UnitStarted,
    Watchdog,
    describe_exit,
    step,
)
from elasticd.supervision.unit import Restart, RestartLimit, Unit

UNIT = Unit(
    name="reducer",
    command=("python",),
    restart_delay_seconds=1.0,
    limit=RestartLimit(burst=3, interval_seconds=100.0),
    start_timeout_seconds=10.0,
    watchdog_seconds=5.0,
    stop_timeout_seconds=2.0,
)


def play(
    *events: tuple[float, Event], unit: Unit = UNIT, status: Status | None = None
) -> Transition:
    """The last transition of a history."""
    transition = Transition(status or Status())
    for now, event in events:
        transition = step(unit, transition.status, now, event)
    return transition


UP: tuple[tuple[float, Event], ...] = ((0, StartUnit()), (0, UnitStarted()), (1, UnitReady()))


def test_the_way_up() -> None:
    first = play((0, StartUnit()))
    assert first.actions == (Spawn(),) and first.status.state is State.ACTIVATING
    assert first.reason == "reducer is started"
    started = play(*UP[:2])
    assert started.status.deadline == 10.0 and started.status.running
    ready = play(*UP)
    assert ready.status.state is State.ACTIVE and ready.status.deadline == 6.0


def test_running_is_enough_for_a_unit_that_does_not_notify() -> None:
    unit = replace(UNIT, notifies=False, watchdog_seconds=0.0)
    transition = play((0, StartUnit()), (0, UnitStarted()), unit=unit)
    assert transition.status.state is State.ACTIVE and transition.status.deadline is None


def test_a_second_start_changes_nothing() -> None:
    assert play(*UP, (2, StartUnit())) == Transition(play(*UP).status)


def test_not_ready_in_time_is_ended_and_started_again() -> None:
    late = play(*UP[:2], (10, Timer()))
    assert late.actions == (Signal(signal.SIGTERM),)
    assert late.reason == "reducer was not ready after 10 s"
    stubborn = play(*UP[:2], (10, Timer()), (12, Timer()))
    assert stubborn.actions == (Signal(signal.SIGKILL),)
    ended = play(*UP[:2], (10, Timer()), (11, Exited(0)))
    assert ended.status.state is State.ACTIVATING and ended.status.deadline == 12.0
    again = play(*UP[:2], (10, Timer()), (11, Exited(0)), (12, Timer()))
    assert again.actions == (Spawn(),) and again.reason == "reducer is started again"


def test_silence_is_killed_at_once() -> None:
    assert play(*UP, (4, Watchdog()), (8, Timer())).actions == ()
    silent = play(*UP, (4, Watchdog()), (9, Timer()))
    assert silent.actions == (Signal(signal.SIGKILL),)
    assert silent.reason == "reducer gave no sign of life for 5 s"
    ended = play(*UP, (6, Timer()), (6, Exited(-9)))
    assert ended.reason == "reducer gave no sign of life for 5 s; started again in 1 s"


def test_failure_restarts_until_the_limit() -> None:
    status = Status()
    reasons = []
    for round_ in range(3):
        now = 10.0 * round_
        transition = play(
            (now, StartUnit() if round_ == 0 else Timer()),
            (now, UnitStarted()),
            (now + 1, Exited(1)),
            status=status,
        )
        status = transition.status
        reasons.append(transition.reason)
    assert reasons[0] == "reducer ended with status 1; started again in 1 s"
    assert status.state is State.FAILED
    assert reasons[2] == "reducer ended with status 1; not started again: 3 starts in 100 s"
    assert play((30, StartUnit()), status=status).actions == (Spawn(),)


def test_old_starts_do_not_count() -> None:
    status = replace(play(*UP).status, starts=(0.0, 1.0, 2.0))
    assert play((50, Exited(1)), status=status).status.state is State.FAILED
    assert play((103, Exited(1)), status=status).status.state is State.ACTIVATING


@pytest.mark.parametrize(
    ("restart", "status", "state"),
    [
        ("no", 0, State.INACTIVE),
        ("no", 1, State.FAILED),
        ("on-failure", 0, State.INACTIVE),
        ("on-failure", 1, State.ACTIVATING),
        ("on-failure", -9, State.ACTIVATING),
        ("always", 0, State.ACTIVATING),
    ],
)
def test_restart_settings(restart: Restart, status: int, state: State) -> None:
    unit = replace(UNIT, restart=restart)
    assert play(*UP, (2, Exited(status)), unit=unit).status.state is state


def test_a_stop_is_obeyed_at_any_moment() -> None:
    assert play((0, StopUnit())) == Transition(Status())
    stopped = play(*UP, (2, StopUnit()))
    assert stopped.actions == (Signal(signal.SIGTERM),) and stopped.status.deadline == 4.0
    assert play(*UP, (2, StopUnit()), (4, Timer())).actions == (Signal(signal.SIGKILL),)
    ended = play(*UP, (2, StopUnit()), (3, Exited(-15)))
    assert ended.status == Status() and ended.reason == "reducer was stopped (was ended by SIGTERM)"
    waiting = play(*UP, (2, Exited(1)), (2.5, StopUnit()))
    assert waiting.status == Status() and waiting.actions == ()
    during_spawn = play((0, StartUnit()), (0, StopUnit()), (0, UnitStarted()))
    assert during_spawn.actions == (Signal(signal.SIGTERM),)
    assert play((0, StartUnit()), (0, StopUnit()), (0, Exited(127))).status == Status()
    after_timeout = play(*UP[:2], (10, Timer()), (10, StopUnit()), (11, Exited(1)))
    assert after_timeout.status == Status()
    failed = play(*UP, (2, Exited(1)), (2, StopUnit()), status=Status(State.FAILED))
    assert failed.status.state is State.INACTIVE
    assert play((0, StopUnit()), status=Status(State.FAILED)).status == Status()


def test_describe_exit() -> None:
    assert describe_exit(0) == "ended with status 0"
    assert describe_exit(-9) == "was ended by SIGKILL"
    assert describe_exit(-5) == "was ended by SIGTRAP"
    assert describe_exit(-100) == "was ended by signal 100"


EVENTS = st.one_of(
    st.sampled_from([StartUnit(), UnitStarted(), UnitReady(), Watchdog(), StopUnit(), Timer()]),
    st.integers(-15, 3).map(Exited),
)


@given(st.lists(st.tuples(st.floats(0, 20), EVENTS), max_size=40))
def test_whatever_happens(history: list[tuple[float, Event]]) -> None:
    """No event raises; a timer that is not due does nothing; a due one always moves on; a unit that
    rests has no timer; every action has a reason; starts stay within the limit."""
    status, now = Status(), 0.0
    spawned: list[float] = []
    for gap, event in history:
        now += gap
        transition = step(UNIT, status, now, event)
        if isinstance(event, Timer) and (status.deadline is None or now < status.deadline):
            assert transition == Transition(status)
        if isinstance(event, Timer) and status.deadline is not None and now >= status.deadline:
            assert transition.status.deadline is None or transition.status.deadline > now
        if transition.actions:
            assert transition.reason
        if isinstance(event, StartUnit) and Spawn() in transition.actions:
            spawned.clear()
        spawned += [now] * transition.actions.count(Spawn())
        recent = [start for start in spawned if now - start < UNIT.limit.interval_seconds]
        assert len(recent) <= UNIT.limit.burst
        status = transition.status
        if status.state in (State.INACTIVE, State.FAILED):
            assert status.deadline is None and not status.running


def test_a_unit_checks_itself() -> None:
    with pytest.raises(ValueError, match="no command"):
        Unit("x", ())
    with pytest.raises(ValueError, match="negative"):
        Unit("x", ("y",), watchdog_seconds=-1)
    with pytest.raises(ValueError, match="burst"):
        RestartLimit(0)
