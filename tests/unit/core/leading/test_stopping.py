"""Which step is the last once a script has asked to stop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from elasticd.core.leading.stopping import ending, last_kept
from elasticd.core.words.records import StopAsked, World
from elasticd.core.words.worlds import Form, Freeze, Progress
from elasticd.types import NodeId, WorkPhase

from .bench import (
    JOB,
    STAMP,
    STEPS,
    A,
    B,
    Bench,
    C,
    holds,
    manifest_of,
    point_of,
    status_of,
    world_of,
)

ASKED = StopAsked(7, "enough")


def after(
    world: World,
    asking: tuple[NodeId, ...],
    bodies: Mapping[NodeId, int] | None = None,
    **at: tuple[int, WorkPhase],
) -> int | None:
    """The last step, if these ask, and these are in that phase behind that committed step."""
    progress = {
        NodeId(n): Progress(
            JOB,
            world.generation,
            step,
            STAMP,
            step,
            0.5,
            phase,
            1.0,
            0,
            {},
            begun=phase in ("compute", "reduce"),
        )
        for n, (step, phase) in at.items()
    }
    found = ending(world, dict.fromkeys(asking, ASKED), progress, bodies or {})
    return None if found is None else found.last


def test_all_ask() -> None:
    assert after(world_of(A, B, C), (A, B, C)) == 7


def test_who_may_still_ask_is_waited_for() -> None:
    world = world_of(A, B, C)
    assert after(world, ()) is None
    assert after(world, (A, B)) is None
    assert after(world, (A, B), c=(7, "user")) is None
    assert after(world, (A, B), c=(6, "compute")) is None


@pytest.mark.parametrize("phase", ["compute", "reduce", "paused"])
def test_who_has_gone_on_did_not_ask(phase: WorkPhase) -> None:
    assert after(world_of(A, B, C), (A, B), c=(7, phase)) == 8


def test_who_waits_in_a_call_of_the_next_body_did_not_ask() -> None:
    world = world_of(A, B, C)
    assert after(world, (A, B), {C: 7}, c=(7, "user")) is None
    assert after(world, (A, B), {C: 8}, c=(7, "user")) == 8


def test_who_was_given_the_state_is_not_asked() -> None:
    world = replace(world_of(A, B, C, step=7), given=(C,))
    assert after(world, (A, B), c=(7, "compute")) == 7
    # In a world that began earlier it has run that step's body.
    assert after(replace(world, step=6), (A, B), c=(7, "compute")) == 8


def test_what_is_decided_stays() -> None:
    world = replace(world_of(A, B, C), last=8)
    assert after(world, (A, B, C)) is None
    assert last_kept(world, point_of(7), "regroup", None) == 8
    assert last_kept(world, point_of(8), "restore", None) == 8


def test_who_goes_back_may_ask_again() -> None:
    world = replace(world_of(A, B, C), last=8)
    assert last_kept(world, point_of(5), "restore", None) == -1
    assert last_kept(None, point_of(5), "restore", None) == -1


def test_a_checkpoint_may_say_that_it_is_the_last() -> None:
    manifest = replace(manifest_of(5, A), last=True)
    assert last_kept(None, point_of(5), "restore", manifest) == 5


def all_asking(bench: Bench, stop: StopAsked) -> World:
    """All members have committed step 7, and their trainers say ``stop``."""
    world = bench.adopt()
    bench.progress(world, 7, phase="user")
    for node in (A, B, C):
        status = status_of("active", world, committed=7)
        assert status.trainer is not None
        trainer = replace(status.trainer, stop=stop)
        bench.driver.hear(node, replace(status, trainer=trainer))
    return world


def test_the_last_step_comes_with_a_world() -> None:
    bench = Bench()
    world = all_asking(bench, ASKED)
    assert [event.reason for event in bench.told("job_stops")] == ["step 7 is the last: enough"]
    held = holds(point_of(7), world.generation)
    bench.answer(a=held, b=held, c=held)
    assert {form.world.last for _, form in bench.sent(Form)} == {7}


def test_the_last_step_outlives_those_who_asked_for_it() -> None:
    """B and C end before the world that was to say it is made; B comes back with nothing."""
    bench = Bench()
    world = all_asking(bench, ASKED)
    bench.sent(Freeze)
    for node in (B, C):
        bench.driver.hear(node, status_of("starting"))
    bench.driver.hear(B, status_of("ready"))
    bench.pass_time(60.0)
    nothing = holds(None)
    for _ in range(3):
        bench.answer(a=holds(point_of(7), world.generation), b=nothing, c=nothing)
        if orders := bench.sent(Form):
            break
        bench.pass_time(5.0)
    assert {form.world.last for _, form in orders} == {7}
    assert len(bench.told("job_stops")) == 1


@pytest.mark.parametrize(("stop", "last"), [(ASKED, 7), (StopAsked(6, "over"), -1), (None, -1)])
def test_who_is_given_the_state_is_told_that_it_is_the_last(
    stop: StopAsked | None, last: int
) -> None:
    """A alone is left of those that ran that step's body. It may be lost before its script asks
    again in the next world, and C would go on."""
    bench = Bench()
    world = bench.adopt()
    bench.progress(world, 7, phase="user")
    status = status_of("active", world, committed=7)
    assert status.trainer is not None
    bench.driver.hear(A, replace(status, trainer=replace(status.trainer, stop=stop)))
    assert not bench.told("job_stops")
    for node in (B, C):
        bench.driver.hear(node, status_of("starting"))
        bench.driver.hear(node, status_of("ready"))
    bench.pass_time(60.0)
    for _ in range(3):
        bench.answer(a=holds(point_of(7), world.generation), b=holds(None), c=holds(None))
        if orders := bench.sent(Form):
            break
        bench.pass_time(5.0)
    assert {form.world.last for _, form in orders} == {last}
    assert len(bench.told("job_stops")) == (last > 0)


@pytest.mark.parametrize("step", [-1, 3, STEPS + 1])
def test_what_no_sound_trainer_asks_for_is_nothing(step: int) -> None:
    bench = Bench()
    all_asking(bench, StopAsked(step, ""))
    assert not bench.told("job_stops") and not list(bench.sent(Freeze))
