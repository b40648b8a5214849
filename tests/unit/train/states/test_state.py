from __future__ import annotations

import json
import math
import random
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np
import pytest
from mlx.utils import tree_map

from elasticd.errors import MismatchError, UsageError
from elasticd.train.states.state import Loaded, TrainingState
from elasticd.train.states.trees import put_together, same_bits, take_apart
from elasticd.train.steps import randomness
from elasticd.train.steps.trial import trial_update
from elasticd.types import Lineage, Point, Stamp

POINT = Point(Lineage("l"), 3, Stamp("abc"))

OPTIMIZERS = {
    "adamw": lambda: optim.AdamW(optim.cosine_decay(0.1, 9)),
    "sgd": lambda: optim.SGD(0.1, momentum=0.9),
    "adafactor": lambda: optim.Adafactor(),
    "lion": lambda: optim.Lion(0.1),
    "muon": lambda: optim.Muon(0.1),
    "counting": lambda: Counting(0.1),
    "lazy": lambda: Lazy(0.1),
    "wrapping": lambda: Wrapping(0.1),
    "holding": lambda: Holding(0.1),
    "two of ours": lambda: optim.MultiOptimizer(
        [Counting(0.1), Lazy(counting_schedule())], [lambda name, _: "weight" in name]
    ),
    "two": lambda: optim.MultiOptimizer(
        [optim.Adam(0.1), optim.SGD(0.1)], [lambda name, _: "weight" in name]
    ),
}


class Counting(optim.SGD):
    """Counts in Python, as many people do."""

    def __init__(self, rate: float) -> None:
        super().__init__(rate)
        self.t = 0
        self.seen: list[float] = []

    def apply_gradients(self, gradients: Any, parameters: Any) -> Any:
        self.t += 1
        self.seen = [*self.seen, 1.0 / self.t][-3:]
        scale = sum(self.seen)
        return super().apply_gradients(tree_map(lambda g: g * scale, gradients), parameters)


class Lazy(optim.Optimizer):
    """Makes its state when it is first needed."""

    def __init__(self, rate: Any) -> None:
        super().__init__()
        self._maybe_schedule("learning_rate", rate)
        self.means: dict[str, mx.array] = {}

    def init_single(self, parameter: mx.array, state: Any) -> None:
        pass

    def apply_single(self, gradient: mx.array, parameter: mx.array, state: Any) -> mx.array:
        state["m"] = 0.5 * state.get("m", mx.zeros_like(gradient)) + gradient
        self.means[str(gradient.shape)] = state["m"].mean()
        change: Any = state["m"] + self.means[str(gradient.shape)]
        result: mx.array = parameter - self.learning_rate * change
        return result


class Wrapping(optim.Optimizer):
    """Has another optimizer."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.inner = optim.Adam(rate)

    def init(self, parameters: Any) -> None:
        self.inner.init(parameters)

    def apply_gradients(self, gradients: Any, parameters: Any) -> Any:
        return self.inner.apply_gradients(gradients, parameters)


class Holding(Wrapping):
    """Has a generator of its own, too."""

    def __init__(self, rate: float) -> None:
        super().__init__(rate)
        self.dice = random.Random(3)

    def apply_gradients(self, gradients: Any, parameters: Any) -> Any:
        scale = self.dice.random()
        return super().apply_gradients(tree_map(lambda g: g * scale, gradients), parameters)


def counting_schedule() -> Any:
    calls = 0

    def rate(step: mx.array) -> mx.array:
        nonlocal calls
        calls += 1
        return mx.array(0.1 / calls)

    return rate


def update(model: Any, optimizer: Any, times: int) -> None:
    for _ in range(times):
        optimizer.update(model, {"weight": model.weight * 0.1, "bias": model.bias + 1})
    mx.eval(model.state, optimizer.state)


def files(state: TrainingState) -> tuple[Mapping[str, mx.array], Mapping[str, str]]:
    snapshot = state.capture(POINT, 0, 30)
    return snapshot.tensors, snapshot.metadata()


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_loaded_state_goes_on_like_the_first(name: str, late: bool) -> None:
    model, optimizer = nn.Linear(3, 4), OPTIMIZERS[name]()
    state = TrainingState(model, optimizer)
    update(model, optimizer, 3)
    saved = files(state)
    kept = {path: mx.array(a) for path, a in saved[0].items()}
    update(model, optimizer, 2)
    assert all(same_bits(kept[path], array) for path, array in saved[0].items())

    other, second = nn.Linear(3, 4), OPTIMIZERS[name]()
    fresh = TrainingState(other, None if late else second)
    loaded = Loaded.from_files(*saved)
    assert loaded.point == POINT
    fresh.install(loaded)
    assert fresh.capture(POINT, 0, 30).metadata() == saved[1]
    assert fresh.capture(POINT, 0, 30).tensors.keys() == saved[0].keys()
    if late:
        fresh.attach(second)
    update(other, second, 2)
    assert mx.array_equal(other.weight, model.weight) and mx.array_equal(other.bias, model.bias)


def test_a_state_of_another_model_is_refused_and_changes_nothing() -> None:
    saved = files(TrainingState(nn.Linear(3, 4), optim.Adam(0.1)))
    model = nn.Linear(3, 5)
    before = model.weight
    with pytest.raises(MismatchError, match=r"model: 'bias' is float32\[5\] here and float32\[4\]"):
        TrainingState(model, optim.Adam(0.1)).install(Loaded.from_files(*saved))
    assert model.weight is before
    with pytest.raises(MismatchError, match=r"optimizer: 'bias\.m' is absent here"):
        TrainingState(nn.Linear(3, 4), optim.SGD(0.1)).install(Loaded.from_files(*saved))


def test_files_of_another_kind_are_refused() -> None:
    with pytest.raises(MismatchError, match="don't hold a state"):
        Loaded.from_files({}, {"format": "pt"})


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_trial_update_leaves_nothing_behind(name: str) -> None:
    """Counters, lists, generators and leaves that it makes included."""
    tries = []
    for trial in (False, True):
        mx.random.seed(4)
        model, optimizer = nn.Linear(3, 4), OPTIMIZERS[name]()
        state = TrainingState(model, optimizer)
        if trial:
            gradients = {"weight": model.weight * 0.5, "bias": model.bias - 1}
            first = trial_update(state, gradients, 0)
            assert trial_update(state, gradients, 0) == first
        update(model, optimizer, 2)
        tries.append(files(state))
    assert tries[0][1] == tries[1][1]
    assert tries[0][0].keys() == tries[1][0].keys()
    assert all(same_bits(tries[0][0][path], tries[1][0][path]) for path in tries[0][0])


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_step_0_resets_an_optimizer_that_came_later(name: str) -> None:
    digests = []
    mx.random.seed(4)
    model, optimizer = nn.Linear(3, 4), OPTIMIZERS[name]()
    state = TrainingState(model, None)
    start = Loaded.from_files(*files(state))
    state.attach(optimizer)
    for _ in range(2):
        update(model, optimizer, 3)
        digests.append(state.capture(POINT, 0, 30).digest())
        state.install(start)
    assert digests[0] == digests[1]


class Span(NamedTuple):
    low: mx.array
    high: mx.array


class Scaled(nn.Module):
    """Has arrays in tuples, which are no parameters."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.span = Span(mx.array([value]), mx.array([value + 1]))
        self.deep = [{"a": (mx.array(value), (3, mx.array(value * 2)))}]


@pytest.mark.parametrize("tracked", [False, True])
def test_arrays_in_tuples_come_back_where_they_were(tracked: bool) -> None:
    def state_of(model: Scaled) -> TrainingState:
        if not tracked:
            return TrainingState(model, optim.Adam(0.1))
        state = TrainingState(nn.Linear(1, 1), None)
        state.track("model", model)
        return state

    mine, theirs = Scaled(5), Scaled(0)
    state, other = state_of(mine), state_of(theirs)
    state.normalize()
    saved = files(state)
    restore = state.copy()
    mine.span, mine.deep[0]["a"] = (
        Span(mx.array([7]), mx.array([8])),
        (mx.array(9), (3, mx.array(9))),
    )
    other.install(Loaded.from_files(*saved))
    restore()  # what is tracked is no part of that
    for model in [theirs] if tracked else [mine, theirs]:
        assert type(model.span) is Span and model.span.low.item() == 5
        assert model.span.high.item() == 6
        first, (plain, second) = model.deep[0]["a"]
        assert (first.item(), plain, second.item()) == (5, 3, 10)


class Warm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.heat = 1.0
        self.where = "/here"
        self.notes: list[float] = []
        self.calls = 0


def test_what_a_module_keeps_in_python_is_part_of_the_state_once_it_has_changed() -> None:
    mine, theirs = Warm(), Warm()
    state, other = (TrainingState(model, optim.SGD(0.1)) for model in (mine, theirs))
    theirs.where = "/there"
    other = TrainingState(theirs, optim.SGD(0.1))
    state.attributes.begin_pass()
    mine.calls += 2
    state.attributes.end_pass()
    saved = files(state)
    assert json.loads(saved[1]["elasticd"])["user"]["attributes"] == {}
    mine.heat, mine.layer.name = 0.5, "cold"
    mine.notes.append(0.25)
    other.install(Loaded.from_files(*files(state)))
    assert (theirs.heat, theirs.layer.name, theirs.notes) == (0.5, "cold", [0.25])
    assert (theirs.where, theirs.calls) == ("/there", 0), (
        "nobody has changed where; calls are not alike"
    )
    assert files(other)[1] == files(state)[1]
    mine.notes.append(0.5)
    assert theirs.notes == [0.25]
    other.install(Loaded.from_files(*saved))
    assert (theirs.heat, hasattr(theirs.layer, "name"), theirs.notes) == (1.0, False, [])


def test_what_becomes_too_long_is_named_and_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    model = Warm()
    state = TrainingState(model, None)
    model.notes = [0.0] * 2000
    for _ in range(2):
        assert json.loads(files(state)[1]["elasticd"])["user"]["attributes"] == {}
    assert capsys.readouterr().err.count("model.notes can no longer be stored") == 1


class Dictish:
    def __init__(self, value: Any) -> None:
        self.value = value

    def state_dict(self) -> Any:
        return {"value": self.value}

    def load_state_dict(self, saved: Any) -> None:
        self.value = saved["value"]


def test_a_snapshot_is_out_of_reach_of_what_is_written_in_place() -> None:
    """Of the model, the optimizer and what is tracked; and so is a state that it is put back to."""
    model, rule = nn.Linear(2, 2), optim.SGD(0.1, momentum=0.9)
    kept: dict[str, Any] = {"average": [mx.ones((2,))]}
    state = TrainingState(model, rule)
    state.track("kept", kept)
    before = state.capture(POINT, 0, 0)
    was = {name: array.tolist() for name, array in before.tensors.items()}

    def write() -> None:
        for array in (model.weight, rule.state["weight"]["v"], kept["average"][0]):
            array += 1

    write()
    state.install(Loaded.of(before))
    assert kept["average"][0].tolist() == [1, 1]
    write()
    assert {name: array.tolist() for name, array in before.tensors.items()} == was


@pytest.mark.parametrize("late", [False, True])
def test_tracked_objects_survive(late: bool) -> None:
    def things() -> dict[str, Any]:
        return {"d": {}, "l": [1], "o": Dictish(0), "m": nn.Linear(1, 2)}

    mine, theirs = things(), things()
    state, other = (TrainingState(nn.Linear(1, 1), None) for _ in range(2))
    for name, thing in mine.items():
        state.track(name, thing)
    mine["d"].update(best=math.inf, tags=("a", None, True), a={"b": mx.array([1])})
    mine["d"] |= {"a.b": mx.array([2]), 7: np.float32(0.5), "n": np.arange(3)}
    mine["l"].append({"x": 2})
    mine["o"].value = mx.array([3.5], mx.bfloat16)
    if not late:
        for name, thing in theirs.items():
            other.track(name, thing)
    other.install(Loaded.from_files(*files(state)))
    if late:
        assert other.capture(POINT, 0, 30).metadata() == files(state)[1]
        for name, thing in theirs.items():
            other.track(name, thing)
    found = theirs["d"]
    assert found["best"] == math.inf and found["tags"] == ("a", None, True)
    assert found["a"]["b"].item() == 1 and found["a.b"].item() == 2
    assert found[7] == 0.5 and found[7].dtype == np.float32 and found["n"].tolist() == [0, 1, 2]
    assert theirs["l"] == [1, {"x": 2}]
    assert theirs["o"].value.dtype == mx.bfloat16 and theirs["o"].value.item() == 3.5
    assert mx.array_equal(theirs["m"].weight, mine["m"].weight)


@pytest.mark.parametrize("made", [True, False], ids=["made", "made in an update"])
@pytest.mark.parametrize("name", ["adamw", "sgd", "adafactor", "wrapping", "two"])
def test_a_tracked_optimizer_has_its_state_where_a_compiled_update_looks_for_it(
    name: str, made: bool
) -> None:
    def compiled(model: Any, optimizer: Any) -> Any:
        if made:
            optimizer.init(model.trainable_parameters())
        held = [model.state, optimizer.state, getattr(optimizer, "inner", optimizer).state]

        @partial(mx.compile, inputs=held, outputs=held)
        def step(target: mx.array) -> mx.array:
            gradients = {"weight": model.weight - target, "bias": model.bias + 1}
            optimizer.update(model, gradients)
            return target.sum()

        return step

    def tracking(model: Any, optimizer: Any) -> TrainingState:
        state = TrainingState(model, None)
        state.track("optimizer", optimizer)
        return state

    def go_on(model: Any, step: Any, times: int) -> list[float]:
        found = []
        for number in range(times):
            step(mx.full((4, 3), number))
            mx.eval(model.state)
            found += model.weight.flatten().tolist() + model.bias.tolist()
        return found

    model, optimizer = nn.Linear(3, 4), OPTIMIZERS[name]()
    step, state = compiled(model, optimizer), tracking(model, optimizer)
    go_on(model, step, 3)
    loaded = Loaded.of(state.capture(POINT, 0, 30))
    after = go_on(model, step, 2)
    state.install(loaded)  # as where a job goes back
    assert go_on(model, step, 2) == after

    other, second = nn.Linear(3, 4), OPTIMIZERS[name]()
    again = compiled(other, second)
    fresh = tracking(other, second)
    fresh.install(loaded)  # as where somebody joins
    assert go_on(other, again, 2) == after


@pytest.mark.parametrize("thing", [7, "text", object()])
def test_what_can_not_be_tracked(thing: Any) -> None:
    with pytest.raises(UsageError, match=r"run\.track"):
        TrainingState(nn.Linear(1, 1), None).track("thing", thing)


@pytest.mark.parametrize("value", [{"a": object()}, [{1, 2}], {(1, 2): 3}])
def test_what_can_not_be_stored_is_named(value: Any) -> None:
    with pytest.raises(UsageError, match="root"):
        take_apart(value, "root", {})


def test_plain_data_comes_back() -> None:
    value = {"a": [1, (2.5, "x", None)], "b": {}, "c": [], "d": False}
    tensors: dict[str, mx.array] = {}
    assert put_together(take_apart(value, "root", tensors), tensors) == value


def test_random_numbers_depend_on_where_we_are_only() -> None:
    import random

    def draw() -> tuple[Any, ...]:
        return mx.random.uniform().item(), random.random(), np.random.rand()

    randomness.seed_grain(1, 2, 3)
    first = draw()
    randomness.seed_grain(1, 2, 4)
    assert all(a != b for a, b in zip(first, draw(), strict=True))
    randomness.seed_grain(1, 2, 3)
    assert draw() == first


class Counted(nn.Linear):
    """Keeps a list, which might change in place, and counts who asks what is trained."""

    def __init__(self) -> None:
        super().__init__(2, 2)
        self.kinds = ["full", "sliding"]
        self._asked = [0]

    def trainable_parameters(self) -> Any:
        self._asked[0] += 1
        return super().trainable_parameters()


def test_what_is_trained_is_looked_for_when_that_may_have_changed() -> None:
    """Large models have many parameters, and there is a state after every step."""
    model = Counted()
    state = TrainingState(model, optim.Adam(0.1))
    state.capture(POINT, 0, 0)
    asked = model._asked[0]
    state.update({"weight": mx.ones((2, 2)), "bias": mx.ones((2,))})
    assert state.capture(POINT, 0, 0).trainable == ("weight", "bias")
    assert model._asked[0] == asked
    model.freeze(keys="bias")
    assert state.capture(POINT, 0, 0).trainable == ("weight",)
    model.kinds[0] = "other"
    assert state.capture(POINT, 0, 0).plain["attributes"]
    assert model._asked[0] == asked + 1
