"""``run.track(…, per_rank=True)``: it follows its process, and what the dead leave is taken up."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import mlx.nn as nn
import mlx.optimizers as optim
import pytest

import elasticd
from elasticd.errors import UsageError
from elasticd.train.states.parts import told
from elasticd.types import Point
from tests.unit.train import models
from tests.unit.train.cohort import Cohort, Killed, spec

STEPS = 8
States = dict[Any, set[str]]


def script(high: bool, states: States) -> Callable[[Any], dict[str, Any]]:
    """Each rank notes its name, and the steps whose bodies it ran; ``states``: what was stored."""

    def run_it(seat: Any) -> dict[str, Any]:
        def checkpoint(world: Any, snapshot: Any, stall: float) -> None:
            states.setdefault(snapshot.point, set()).add(told(snapshot).check)
            seat.checkpoints.append((snapshot.point.step, snapshot.digest()))

        seat.checkpoint = checkpoint
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
        optimizer = optim.Adam(1e-2)
        run = elasticd.Run(
            model=model, optimizer=optimizer, loss=models.loss, data=models.samples()
        )
        seen: dict[str, Any] = {"who": seat.name, "bodies": []}
        run.track("seen", seen, per_rank=True)
        with pytest.raises(UsageError, match="taken"):
            run.track("seen", {})

        def dies(step: int) -> None:
            if seat.cohort.dies_after.get(seat.name) == step:
                raise Killed

        def body(step: int) -> None:
            dies(step)
            seen["bodies"].append(step)

        dies(0)  # above the loop
        if high:
            for step in run:
                body(step.number)
        else:
            loss_and_grad: Any = nn.value_and_grad(model, models.loss)
            for step in run.steps():
                for batch in step.micro_batches():
                    step.accumulate(*loss_and_grad(model, batch))
                step.apply()
                if not step.late:
                    body(step.number)
        return {**seen, "digest": run.digest()}

    return run_it


def run(made: Cohort, names: str) -> dict[str, Any]:
    results = made.run(list(names))
    for result in results.values():
        if isinstance(result.error, Exception):
            raise result.error
    return {name: result.value for name, result in results.items() if result.error is None}


def cohort(high: bool, seed: int, states: States, **changes: Any) -> Cohort:
    return Cohort(spec(train__steps=STEPS, **changes), script(high, states), random.Random(seed))


@pytest.mark.parametrize("reduction", ["exact", "fast"])
@pytest.mark.parametrize("high", [True, False])
@pytest.mark.parametrize("names", ["a", "abc"])
def test_each_rank_has_its_own(names: str, high: bool, reduction: str) -> None:
    states: States = {}
    found = run(cohort(high, 1, states, world__reduction=reduction), names)
    for name in names:
        assert (found[name]["who"], found[name]["bodies"]) == (name, [*range(1, STEPS + 1)])
    assert len(states) > 2 and all(len(checks) == 1 for checks in states.values())


def test_who_comes_has_what_the_dead_have_left() -> None:
    """As it was when the step began in whose body b died."""
    states: States = {}
    made = cohort(True, 2, states)
    made.dies_after, made.respawn = {"b": 5}, True
    found = run(made, "abc")
    heir = found["b'"]
    assert heir["who"] == "b"
    assert heir["bodies"] == [1, 2, 3, 4, 6, 7, 8]
    for name in "ac":
        assert (found[name]["who"], found[name]["bodies"]) == (name, [*range(1, STEPS + 1)])


def test_it_waits_for_who_comes_later() -> None:
    """a is dead for long when somebody comes in the place of b, and takes what a has left."""
    states: States = {}
    made = cohort(True, 3, states)
    made.dies_after = {"a": 2, "b": 6}

    def respawns(death: Any, bury: Any = made._bury) -> None:
        made.respawn = death.name == "b"
        bury(death)

    made._bury = respawns  # type: ignore[assignment,method-assign]
    found = run(made, "abc")
    assert found.keys() == {"b'", "c"}
    assert (found["b'"]["who"], found["b'"]["bodies"]) == ("a", [1, 7, 8])
    assert found["c"]["bodies"] == [*range(1, STEPS + 1)]


@pytest.mark.parametrize("seed", range(24))
def test_whoever_dies_states_are_alike_and_survivors_keep_their_own(seed: int) -> None:
    dice, states = random.Random(seed), States()
    made = cohort(seed % 2 == 0, seed, states)
    made.kills = {name: dice.randrange(5, 120) for name in "ab"}
    made.respawn = dice.random() < 0.7
    made.delivers, made.keeps_updates = dice.random() < 0.5, dice.random() < 0.5
    found = run(made, "abc")
    assert len({each["digest"] for each in found.values()}) == 1
    assert all(len(checks) == 1 for checks in states.values())
    for name, each in found.items():
        assert each["bodies"] == sorted(set(each["bodies"]))
        if "'" not in name:
            assert each["who"] == name
            missed = {*range(1, STEPS + 1)} - {*each["bodies"]}
            assert len(missed) <= 1, "a body that came too late"


def runs_ahead(seat: Any, step: int) -> None:
    """a makes this step with newcomers, and dies then; c doesn't begin its update before that."""
    begins, ends, members = seat.begin_update, seat.end_update, seat.cohort.members

    def begin_update() -> None:
        if seat.name == "c" and seat.point is not None and seat.point.step + 1 == step:
            seat._wait(lambda: all(member.name != "a" for member in members))
        begins()

    def end_update(point: Point, *what: Any) -> None:
        ends(point, *what)
        if seat.name == "a" and point.step == step:
            seat._wait(lambda: all(m.point == point for m in members if m.unproven))
            raise Killed

    seat.begin_update, seat.end_update = begin_update, end_update


@pytest.mark.parametrize("high", [True, False])
@pytest.mark.parametrize("step", range(4))
def test_a_newcomer_that_goes_back_takes_no_body_along(step: int, high: bool) -> None:
    """It comes in the place of b, and has made the step after with a, which dies: the world goes
    on from what c has. Of step 0 nobody was told anything."""
    states: States = {}
    made = cohort(high, 4, states)
    made.dies_after, made.respawn = {"b": step}, True
    inner = made.script

    def paced(seat: Any) -> Any:
        runs_ahead(seat, step + 1)
        return inner(seat)

    made.script = paced
    found = run(made, "abc")
    assert made.worlds[-1] == (step, 2), "nobody has gone back"
    assert found["c"]["bodies"] == [*range(1, STEPS + 1)]
    missed = {step} if step else set()
    assert found["b'"]["bodies"] == [n for n in range(1, STEPS + 1) if n not in missed]
    assert found["b'"]["digest"] == found["c"]["digest"]
    assert all(len(checks) == 1 for checks in states.values())


def test_one_step_behind() -> None:
    states: States = {}
    made = cohort(True, 3, states)
    made.dies_behind = {"a": 4}
    found = run(made, "abc")
    for name in "bc":
        assert (found[name]["who"], found[name]["bodies"]) == (name, [*range(1, STEPS + 1)])
    assert all(len(checks) == 1 for checks in states.values())
