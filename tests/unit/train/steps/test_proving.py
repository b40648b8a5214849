"""Whoever joins shows in its first step that it computes what the others do, or is left out."""

from __future__ import annotations

import random
from typing import Any

import mlx.core as mx
import pytest

import elasticd
from elasticd.recovery.likeness import by_rank
from elasticd.train.states.shown import together
from elasticd.types import NodeId
from tests.unit.train import models
from tests.unit.train.cohort import Cohort, Killed, LeftOut, Result, spec
from tests.unit.train.steps.test_bodies import Averages, Keeps, Script, played, undisturbed

STEPS = 8


class BetaInGlobal(Script):
    """What the body keeps, and the loss reads, begins anew in a joiner."""

    high = True

    def __init__(self) -> None:
        super().__init__()
        self.beta = 0.0

    def loss(self, model: Any, batch: Any) -> mx.array:
        return models.loss(model, batch) * (1 + self.beta)

    def bottom(self, step: elasticd.Step) -> None:
        self.beta = step.number / 20


class CountsItself(Script):
    """A schedule by a counter of the script's own: no gradient shows it."""

    high = True

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def bottom(self, step: elasticd.Step) -> None:
        self.count += 1
        self.optimizer.learning_rate = 1e-2 * 0.9**self.count


class CountsInTheBody(CountsItself):
    high = False

    def top(self, step: elasticd.Step) -> None:
        """The gradient of the step does not show it, nor the state before."""
        self.count += 1
        self.optimizer.learning_rate = 1e-2 * 0.9**self.count

    def bottom(self, step: elasticd.Step) -> None:
        """It is done."""


class Rolls(Script):
    """A random key of the script's own moves the model."""

    def __init__(self) -> None:
        super().__init__()
        self.key = mx.random.key(3)

    def bottom(self, step: elasticd.Step) -> None:
        layer: Any = self.model.layers[0]
        self.key, part = mx.random.split(self.key)
        layer.weight = layer.weight + mx.random.normal((8, 4), key=part)


def killed(kind: type[Script], after: int = 3, delivers: bool = False) -> tuple[Cohort, Any]:
    """``b`` dies behind step ``after``; its successor joins."""
    cohort = Cohort(spec(train__steps=STEPS), played(kind), random.Random(0))
    cohort.dies_behind, cohort.respawn, cohort.delivers = {"b": after + 1}, True, delivers
    return cohort, cohort.run(list("abc"))


def ends(result: Result) -> tuple[Any, Any]:
    if result.error is not None:
        raise result.error
    return result.value["ends"], result.value["checkpoints"][-1]


@pytest.mark.parametrize("delivers", [False, True])
@pytest.mark.parametrize(
    ("kind", "shown"),
    [
        (BetaInGlobal, "grain"),
        (CountsItself, "optimizer/learning_rate"),
        (CountsInTheBody, "optimizer/learning_rate"),
        (Rolls, "model/layers.0.weight"),
    ],
)
def test_who_computes_something_else_is_left_out(
    kind: type[Script], shown: str, delivers: bool
) -> None:
    alone = undisturbed(kind, steps=STEPS)
    cohort, results = killed(kind, delivers=delivers)
    assert isinstance(results["b"].error, Killed)
    assert isinstance(results["b'"].error, LeftOut)
    assert list(cohort.judge.unfit) == ["b'"]
    why = cohort.judge.unfit["b'"]
    assert why.startswith("the script keeps state outside of run.state: in its first step, ")
    assert shown in why
    for name in "ac":
        assert ends(results[name]) == (alone["ends"], alone["checkpoints"][-1])


@pytest.mark.parametrize("kind", [Keeps, Averages])
def test_who_keeps_its_state_where_it_belongs_goes_on(kind: type[Script]) -> None:
    alone = undisturbed(kind, steps=STEPS)
    cohort, results = killed(kind)
    assert not cohort.judge.unfit
    assert {part for _, part, name in cohort.judge.proven if name == "b'"} == {"grain", "body"}
    for name in ("a", "b'", "c"):
        assert ends(results[name])[0] == alone["ends"]


class CountsByRank(Script):
    """What it tracks belongs to each rank, and it does not say so."""

    high = True

    def above(self, run: elasticd.Run) -> None:
        self.run_of, self.seen = run, {"seen": 0}
        run.track("seen", self.seen)

    def bottom(self, step: elasticd.Step) -> None:
        self.seen["seen"] = self.run_of.rank + 1


def test_all_show_their_state_so_that_what_differs_by_rank_has_its_name() -> None:
    cohort, _ = killed(CountsByRank)
    states = next(shown for (_, part), shown in cohort.judge.shown.items() if part == "body")
    assert len(states) == 3
    kept = {NodeId(str(rank)): shown for rank, shown in states.items()}
    found = by_rank(kept)
    assert found is not None and found.name == "run.track('seen', …)"


@pytest.mark.parametrize("seed", range(6))
def test_who_has_shown_it_waits_for_nothing_when_a_later_body_is_void(seed: int) -> None:
    """Its state is again that of the first step, in which it has shown what there is to show."""
    cohort = Cohort(spec(train__steps=STEPS), played(Keeps), random.Random(seed))
    cohort.keeps_updates, cohort.respawns = False, 2
    cohort.dies_behind = {"b": 4, "c": 6}
    results = cohort.run(list("abc"))
    alone = undisturbed(Keeps, steps=STEPS)
    assert not cohort.judge.unfit
    assert ends(results["a"])[0] == ends(results["b'"])[0] == alone["ends"]


def test_nothing_is_shown_where_nobody_joins() -> None:
    cohort = Cohort(spec(train__steps=STEPS), played(BetaInGlobal), random.Random(0))
    cohort.run(list("abc"))
    assert not cohort.judge.shown


def test_only_the_first_step_is_shown() -> None:
    cohort, _ = killed(Keeps)
    parts = [part for _, part in cohort.judge.shown]
    assert sorted(parts) == ["body", "grain"]


def test_names_go_together_where_there_are_many() -> None:
    found = {f"{n:04d}": str(n) for n in range(7)}
    assert together(found, 7) == found
    few = together(found, 3)
    assert list(few) == ["0000 … 0002", "0003 … 0005", "0006 … 0006"]
    changed = together({**found, "0004": "x"}, 3)
    assert [name for name in few if few[name] != changed[name]] == ["0003 … 0005"]
