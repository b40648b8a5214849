"""What forward passes make of a module's Python values: each pass begins with what the step began
with, and what all grains leave alike is part of the state, whoever dies."""

from __future__ import annotations

import random
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import pytest

import elasticd
from tests.unit.train import models
from tests.unit.train.cohort import Cohort, spec
from tests.unit.train.steps.test_bodies import STEPS, Script, check_survivors, played, undisturbed


class SetUpByData(nn.Module):
    """As ActNorm."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.mean, self._ready = nn.Linear(4, 3), mx.zeros((4,)), False
        self.freeze(keys=["mean"], recurse=False)

    def __call__(self, x: mx.array) -> mx.array:
        if not self._ready:
            self.mean, self._ready = mx.stop_gradient(x.mean(0)), True
        out: mx.array = self.linear(x - self.mean)
        return out


class Counts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.calls = nn.Linear(4, 3), 0

    def __call__(self, x: mx.array) -> mx.array:
        self.calls += 1
        out: mx.array = self.linear(x) * (1 + 0.1 * self.calls)
        return out


class Remembers(nn.Module):
    """A number and a list that come of the samples, and that the next pass would go on with."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.last, self.all = nn.Linear(4, 3), 0.0, [0.5]

    def __call__(self, x: mx.array) -> mx.array:
        scale = 1 + self.last + sum(self.all)
        self.last = float(abs(x[0, 0].item()))
        self.all.append(self.last)
        out: mx.array = self.linear(x) * scale
        return out


class GrowsMask(nn.Module):
    """A cache, and beside it the length that it has."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self._mask, self._length = nn.Linear(4, 3), mx.ones((1, 4)), 1
        self.freeze(keys=["_mask"], recurse=False)

    def __call__(self, x: mx.array) -> mx.array:
        if len(x) > self._length:
            self._mask, self._length = mx.ones((len(x), 4)), len(x)
        out: mx.array = self.linear(x * self._mask[: len(x)])
        return out


class SetUpAtFirst(nn.Module):
    """A private array that the job's first pass makes for all later ones."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self._ready = nn.Linear(4, 3), False

    def __call__(self, x: mx.array) -> mx.array:
        if not self._ready:
            self._scale, self._ready = mx.stop_gradient(1 + mx.abs(x).max()), True
        out: mx.array = self.linear(x / self._scale)
        return out


def passing(made: type[nn.Module]) -> type[Script]:
    class Passing(Script):
        high = True

        def __init__(self) -> None:
            super().__init__()
            mx.random.seed(3)
            self.model: Any = made()

        def ends(self) -> str:
            kept = {name: value for name, value in vars(self.model).items() if name != "_no_grad"}
            return super().ends() + str(kept) + str(self.model.get("all"))

    Passing.__name__ = made.__name__
    return Passing


MODELS = (SetUpByData, Counts, Remembers, GrowsMask, SetUpAtFirst)


@pytest.mark.parametrize("made", MODELS)
def test_neither_the_worlds_size_nor_deaths_change_anything(
    made: type[nn.Module], capsys: pytest.CaptureFixture[str]
) -> None:
    kind = passing(made)
    alone = undisturbed(kind)
    if made is not Remembers:  # of which the body is shown what the last pass has left
        assert undisturbed(kind, "abc") == alone
    dice = random.Random(made.__name__)
    cohort = Cohort(spec(train__steps=STEPS), played(kind), dice)
    cohort.kills = {"a": dice.randrange(8, 90), "b": dice.randrange(8, 90)}
    cohort.respawn = cohort.delivers = cohort.keeps_updates = True
    assert check_survivors(cohort, cohort.run(list("abc")), alone), "nobody died"
    said = capsys.readouterr().err
    assert ("model.last" in said) == (made is Remembers)


def test_a_buffer_that_samples_set_up_is_set_up_in_the_first_step_alone() -> None:
    seen = []

    class Looks(passing(SetUpByData)):  # type: ignore[misc]
        def bottom(self, step: elasticd.Step) -> None:
            seen.append((self.model._ready, self.model.mean.tolist()))

    undisturbed(Looks)
    assert [ready for ready, _ in seen] == [True] * STEPS
    assert seen[0] == seen[-1] and any(seen[0][1])


def test_a_count_grows_by_one_in_each_step_and_the_body_reads_what_a_pass_has_left() -> None:
    seen = []

    class Looks(passing(Counts)):  # type: ignore[misc]
        def bottom(self, step: elasticd.Step) -> None:
            seen.append(self.model.calls)

    class LooksAtLast(passing(Remembers)):  # type: ignore[misc]
        def bottom(self, step: elasticd.Step) -> None:
            seen.append(self.model.last > 0 and len(self.model.all))

    undisturbed(Looks)
    undisturbed(LooksAtLast)
    assert seen == [*range(1, STEPS + 1), *[2] * STEPS]


def test_what_one_rank_alone_passes_in_its_body_is_undone_and_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def script(seat: Any) -> Any:
        mx.random.seed(3)
        model = Counts()
        ours = Script()
        run = elasticd.Run(
            model=model, optimizer=ours.optimizer, loss=models.loss, data=models.samples()
        )
        for step in run:
            if run.is_main:
                run.evaluate(lambda: model(mx.ones((2, 4))))
                assert model.calls == step.number, "it is as it was before"
                if step.number > 3:
                    model(mx.ones((2, 4)))
        return run.digest(), model.calls

    results = {}
    for names in ("a", "ab"):
        cohort = Cohort(spec(train__steps=STEPS), script, random.Random(0))
        results[names] = {result.value for result in cohort.run(list(names)).values()}
    assert results["a"] == results["ab"] and len(results["a"]) == 1
    said = capsys.readouterr().err
    assert said.count("what it leaves there is undone") == 2


def test_what_only_a_trace_counts_is_neither_kept_nor_a_reason_to_doubt() -> None:
    """A compiled function runs its Python at its first call, and for another shape."""

    class Traced(Counts):
        def __init__(self) -> None:
            super().__init__()
            self.shapes: Any = lambda shape, known=set(): shape in known or known.add(shape)

        def __call__(self, x: mx.array) -> mx.array:
            if not self.shapes(x.shape):
                self.calls += 1
            out: mx.array = self.linear(x)
            return out

    def script(seat: Any) -> Any:
        model, ours = Traced(), Script()
        run = elasticd.Run(
            model=model, optimizer=ours.optimizer, loss=models.loss, data=models.samples()
        )
        for _ in run:
            pass
        return seat.probe.repeats, model.calls

    (result,) = Cohort(spec(train__steps=STEPS), script, random.Random(0)).run(["a"]).values()
    assert result.error is None and result.value == (True, 0)
