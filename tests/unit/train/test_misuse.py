"""What a script can do wrong, and what it is told."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from typing import Any, NamedTuple

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import pytest

import elasticd
from elasticd.errors import StateError, UsageError
from tests.unit.train.cohort import Cohort, spec


def outcome(script: Callable[[Any], Any]) -> BaseException | None:
    results = Cohort(spec(), script, random.Random(0)).run(["a"])
    return results["a"].error


class Model(nn.Module):
    """Whose forward pass does what it is told to its state."""

    def __init__(self, forward: Callable[[Any], None] = lambda model: None) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.table = mx.zeros((3,))
        self.pair, self.moved = (mx.zeros(2), mx.ones(2)), (mx.zeros(2),)
        self.freeze(keys=["table", "pair", "moved"], recurse=False)
        self.passes = 0
        self._forward = forward

    def __call__(self, x: mx.array) -> mx.array:
        self.passes += 1
        self._forward(self)
        return self.layer(x)


def loss(model: Any, batch: mx.array) -> Any:
    return model(batch).square().mean()


DATA = [mx.array([1.0, float(i)]) for i in range(9)]


def begin(model: nn.Module) -> tuple[Any, Any]:
    run = elasticd.Run(model=model, optimizer=optim.SGD(0.1), data=DATA)
    return run, nn.value_and_grad(model, loss)


def no_apply(step: Any, model: Any, gradient: Any) -> None:
    for batch in step.micro_batches():
        step.accumulate(*gradient(model, batch))


def left_early(step: Any, model: Any, gradient: Any) -> None:
    for batch in step.micro_batches():
        step.accumulate(*gradient(model, batch))
        break
    step.apply()


def never_looped(step: Any, model: Any, gradient: Any) -> None:
    step.apply()


def not_accumulated(step: Any, model: Any, gradient: Any) -> None:
    for _ in step.micro_batches():
        pass


def twice(step: Any, model: Any, gradient: Any) -> None:
    for batch in step.micro_batches():
        found = gradient(model, batch)
        step.accumulate(*found)
        step.accumulate(*found)


def vector_loss(step: Any, model: Any, gradient: Any) -> None:
    for batch in step.micro_batches():
        step.accumulate(mx.zeros((2,)), gradient(model, batch)[1])


def other_gradients(step: Any, model: Any, gradient: Any) -> None:
    for number, batch in enumerate(step.micro_batches()):
        value, grads = gradient(model, batch)
        step.accumulate(value, grads if number < 2 else {"layer": {"bias": mx.zeros((2,))}})


def applied_twice(step: Any, model: Any, gradient: Any) -> None:
    no_apply(step, model, gradient)
    step.apply()
    step.apply()


def other_optimizer(step: Any, model: Any, gradient: Any) -> None:
    no_apply(step, model, gradient)
    step.apply(optim.SGD(0.2))


def looped_twice(step: Any, model: Any, gradient: Any) -> None:
    no_apply(step, model, gradient)
    no_apply(step, model, gradient)


def early_loss(step: Any, model: Any, gradient: Any) -> None:
    print(step.loss)


def no_gradients(step: Any, model: Any, gradient: Any) -> None:
    for batch in step.micro_batches():
        step.accumulate(gradient(model, batch)[0], None)


def grads_become(value: Callable[[Any], Any]) -> Callable[..., None]:
    def body(step: Any, model: Any, gradient: Any) -> None:
        no_apply(step, model, gradient)
        step.grads = value(step.grads)
        step.apply()

    return body


def grads_too_late(step: Any, model: Any, gradient: Any) -> None:
    no_apply(step, model, gradient)
    step.apply()
    step.grads = {}


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (no_gradients, "the gradients are a NoneType; give a tree of arrays"),
        (grads_become(lambda found: None), "the gradients are a NoneType; give a tree of arrays"),
        (grads_become(lambda found: {"w": mx.ones(2)}), "the model has no parameter 'w'"),
        (
            grads_become(lambda found: {"layer": {"bias": mx.ones(3)}}),
            r"gradient of layer.bias has shape \(3,\), its parameter \(2,\)",
        ),
        (grads_too_late, "the step is applied already"),
        (no_apply, "did not call step.apply"),
        (left_early, "was left early"),
        (never_looped, "has not run"),
        (not_accumulated, "was not given to step.accumulate"),
        (twice, "each once"),
        (vector_loss, r"loss has shape \(2,\)"),
        (other_gradients, "other gradients than before: layer.weight"),
        (applied_twice, "was called already"),
        (other_optimizer, "one optimizer"),
        (looped_twice, "looped over once"),
        (early_loss, "step.loss needs the reduced step"),
    ],
)
def test_a_wrong_body_is_told(body: Callable[..., None], says: str) -> None:
    def script(seat: Any) -> None:
        model = Model()
        run, gradient = begin(model)
        for step in run.steps():
            body(step, model, gradient)

    error = outcome(script)
    assert isinstance(error, UsageError)
    with pytest.raises(UsageError, match=says):
        raise error


def change_late(model: Any) -> None:
    if model.passes > 4:
        model.table = model.table + 1


def appear(model: Any) -> None:
    model.extra = mx.zeros((1,))


def taking_away(name: str, left: Any = None) -> Callable[[Any], None]:
    """What the first pass has left alone, or has assigned."""

    def forward(model: Any) -> None:
        if model.passes > 4:
            setattr(model, name, left)
        elif name == "moved":
            model.moved = tuple(array + 1 for array in model.moved)

    return forward


def change_parameter(model: Any) -> None:
    model.layer.weight = model.layer.weight * 2


def count_randomly(model: Any) -> None:
    model.counter = mx.array(random.randrange(1000))


@pytest.mark.parametrize(
    ("forward", "says"),
    [
        (change_late, "changed table, which the first pass"),
        (appear, "made extra come or go"),
        (count_randomly, "counter is .*int32 and differs"),
        (taking_away("table"), r"took away table, which was float32\[\d+\]: let every pass leave"),
        (taking_away("table", 3), "took away table, which"),
        (taking_away("pair"), r"took away pair\.0, which"),
        (taking_away("pair", mx.zeros((2, 2))), r"took away pair\.0, which was"),
        (taking_away("pair", (None, None)), r"took away pair\.0, which was float32\["),
        (taking_away("pair", (mx.zeros(2),)), r"took away pair\.1, which"),
        (taking_away("moved"), r"took away moved\.0, which"),
    ],
)
def test_state_that_can_not_be_kept_equal_is_named(
    forward: Callable[[Any], None], says: str
) -> None:
    def script(seat: Any) -> None:
        model = Model(forward)
        if forward is count_randomly:
            model.counter = mx.array(-1)
            model.freeze(keys=["counter"], recurse=False)
        for _ in elasticd.Run(model=model, optimizer=optim.SGD(0.1), loss=loss, data=DATA):
            pass

    error = outcome(script)
    assert isinstance(error, (UsageError, StateError))
    with pytest.raises(type(error), match=says):
        raise error


def test_state_written_in_place_starts_anew_in_every_grain() -> None:
    def in_place(model: Any) -> None:
        model.table[0] = model.table[0] + 1

    def script(seat: Any) -> Any:
        model = Model(in_place)
        for _ in elasticd.Run(model=model, optimizer=optim.SGD(0.1), loss=loss, data=DATA):
            pass
        return model.table.tolist()

    results = Cohort(spec(), script, random.Random(0)).run(["a"])
    assert results["a"].error is None
    assert results["a"].value == [4.0, 0.0, 0.0]  # once a step


class Positioned:
    """A stream that says where it is by a property."""

    state: Any = property(lambda self: {})

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> mx.array:
        return mx.array([1.0, 2.0])

    def load_state(self, state: Any) -> None:
        raise AssertionError("nobody asks for that")


class Drawn:
    """A dataset that draws a sample when it is first asked for it."""

    def __len__(self) -> int:
        return 9

    @functools.cache  # noqa: B019
    def __getitem__(self, index: int) -> mx.array:
        return mx.random.normal((2,))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"model": 7}, "model= is a int"),
        ({"model": nn.Linear}, "model= is the class Linear, not an mlx.nn.Module"),
        ({"data": lambda: 7}, "data= is a function that returned a int"),
        ({"data": lambda path: DATA}, "has this: missing a required argument: 'path'"),
        ({"collate": lambda samples: None}, "collate= returned None"),
        ({"optimizer": 7}, "optimizer="),
        ({"optimizer": optim.SGD}, "optimizer= is the class SGD; give one"),
        ({"clip_norm": 0}, "clip_norm= must be a number above 0, not 0"),
        ({"clip_norm": float("nan")}, "clip_norm= must be a number above 0, not nan"),
        ({"clip_norm": "1"}, "clip_norm= must be a number above 0, not '1'"),
        ({"loss": "mse"}, "loss= must be a function, loss(model, batch), not 'mse'"),
        ({"collate": "pad"}, "collate= must be a function, collate(samples), not 'pad'"),
        ({"compile": "yes"}, "compile= must be True or False, not 'yes'"),
        ({"data": Positioned}, "state() of its iterator is a dict: make it a method"),
        ({"data": 7}, "data="),
        ({"data": {"x": [1.0, 2.0], "y": [0, 1]}}, "a dict of columns"),
        ({"data": (mx.zeros((9, 2)), mx.zeros(9))}, "a tuple of columns"),
        ({"data": Drawn()}, "keeps what it made"),
        ({"data": (mx.zeros((30, 4)), mx.zeros((30, 4)))}, "a tuple of columns"),
        ({"loss": None}, "loss=, optimizer="),
    ],
)
def test_a_wrong_run_is_told(arguments: dict[str, Any], says: str) -> None:
    def script(seat: Any) -> None:
        given = {"model": Model(), "optimizer": optim.SGD(0.1), "loss": loss, "data": DATA}
        for _ in elasticd.Run(**{**given, **arguments}):
            pass

    error = outcome(script)
    assert isinstance(error, UsageError) and says in str(error)


@pytest.mark.parametrize(
    ("arguments", "cure"),
    [
        ({"clip_norm": 1.0}, "Run(…, clip_norm=) has no effect there: leave it away, and use"
         " step.grads, _ = optim.clip_grad_norm(…) in the body"),
        ({"compile": True}, "Run(…, compile=True) has no effect there: leave it away, and use"
         " mx.compile in the body"),
    ],
)  # fmt: skip
def test_what_is_for_the_other_loop_is_told(arguments: dict[str, Any], cure: str) -> None:
    def script(seat: Any) -> None:
        elasticd.Run(
            model=Model(), optimizer=optim.SGD(0.1), loss=loss, data=DATA, **arguments
        ).steps()

    error = outcome(script)
    assert isinstance(error, UsageError) and str(error).endswith(cure)


def test_a_model_that_is_all_frozen_is_told() -> None:
    def script(seat: Any) -> None:
        model = Model()
        model.freeze()
        for _ in elasticd.Run(model=model, optimizer=optim.SGD(0.1), loss=loss, data=DATA):
            pass

    error = outcome(script)
    assert isinstance(error, UsageError) and "nothing to train" in str(error)


def pair_loss(model: Any, batch: mx.array) -> Any:
    return model(batch).square().mean(), mx.array(0.9)


def tokens_loss(model: Any, batch: mx.array) -> Any:
    """As in mlx-lm: the mean over the tokens, and how many these are."""
    tokens = mx.array(batch.size)
    return model(batch).square().sum() / tokens, tokens


def each_loss(model: Any, batch: mx.array) -> Any:
    return model(batch).square().sum(axis=-1)


class Pair(NamedTuple):
    loss: Any
    tokens: Any


def named_pair_loss(model: Any, batch: mx.array) -> Any:
    return Pair(*tokens_loss(model, batch))


def late_metrics(model: Any, batch: mx.array) -> Any:
    shown = {"hits": 1.0} if model.passes <= 3 else {"share": 1.0}
    return elasticd.Weighted(model(batch).square().mean(), len(batch), shown)


def negative_weight(model: Any, batch: mx.array) -> Any:
    """Of one batch among several, whose sum is above 0."""
    return elasticd.Weighted(model(batch).square().mean(), 2 - batch.max())


@pytest.mark.parametrize(
    ("of", "says"),
    [
        (negative_weight, "a batch's weight was negative; it must be a finite number from 0"),
        (pair_loss, "a tuple of 2 values; return the mean alone"),
        (tokens_loss, "a tuple of 2 values; return the mean alone"),
        (named_pair_loss, "a Pair of 2 values; return the mean alone"),
        (each_loss, "more than one number; return the mean"),
        (late_metrics, "other metrics than before: hits, share"),
    ],
)
def test_what_a_loss_may_not_return_is_told_before_it_mistrains(
    of: Callable[..., Any], says: str
) -> None:
    def script(seat: Any) -> None:
        run = elasticd.Run(model=Model(), optimizer=optim.SGD(0.1), loss=of, data=DATA)
        with pytest.raises(UsageError, match=says):
            for step in run:
                assert step.number < 2

    assert outcome(script) is None


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("of", [pair_loss, tokens_loss, named_pair_loss])
def test_pairs_are_refused_in_a_loop_of_one_s_own_too(
    of: Callable[..., Any], compiled: bool
) -> None:
    def script(seat: Any) -> None:
        model = Model()
        run = elasticd.Run(model=model, optimizer=optim.SGD(0.1), data=DATA)
        gradient: Any = nn.value_and_grad(model, of)
        if compiled:
            eager = gradient

            def whole(_: Any, batch: mx.array) -> Any:
                return eager(model, batch)

            gradient = mx.compile(whole, inputs=model.state)
        for step in run.steps():
            for batch in step.micro_batches():
                with pytest.raises(UsageError, match=r"elasticd\.Weighted\(mean, weight"):
                    step.accumulate(*gradient(model, batch))
                return

    assert outcome(script) is None


def test_evaluation_leaves_the_model_as_it_was() -> None:
    def script(seat: Any) -> Any:
        model = Model()
        run, _ = begin(model)
        model.layer.eval()
        seen = [run.evaluate(lambda: model.training), run.evaluate(lambda model: model.training)]
        return seen, model.training, model.layer.training

    results = Cohort(spec(), script, random.Random(0)).run(["a"])
    assert results["a"].value == ([False, False], True, False)


def test_who_becomes_main_without_what_main_has_made_is_told_why_it_fails() -> None:
    told: list[str] = []

    def script(seat: Any) -> None:
        run = elasticd.Run(
            model=nn.Linear(4, 4), optimizer=optim.SGD(0.1), loss=_square, data=mx.ones((40, 4))
        )
        mine = "a log" if run.is_main else None
        told.append(run._advice())
        for _ in run:
            if run.is_main and mine is None:
                told.append(run._advice())

    cohort = Cohort(spec(train__steps=8), script, random.Random(0))
    cohort.kills = {"a": 60}
    cohort.run(list("ab"))
    first, second, *later = told
    assert not first and not second
    assert later and all("run.open(name)" in text for text in later)


def _square(model: Any, x: mx.array) -> mx.array:
    return mx.square(model(x)).mean()
