"""Whatever changes in a model, its compiled loss gives what the loss itself gives."""

from __future__ import annotations

import collections
import dataclasses
import functools
import random
import types
from collections.abc import Callable
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest

from elasticd.train.states import picture
from elasticd.train.states.namespace import Namespace
from elasticd.train.states.picture import Picture
from elasticd.train.steps.compiled import TOLD_AFTER, CompiledLoss

X = mx.array([[0.3, -0.7]])
TRACES: dict[int, int] = {}
"""By a model's id. What a trace changes in the model itself is undone."""


@dataclasses.dataclass
class Args:
    scale: float = 1.0
    more: dict[str, Any] = dataclasses.field(default_factory=lambda: {"shifts": [0.5]})
    constant: Any = None


class Slotted:
    __slots__ = ("__hidden", "shift")

    def __init__(self) -> None:
        self.shift = self.__hidden = 0.0

    def hide(self, value: float) -> None:
        self.__hidden = value

    def total(self) -> float:
        return self.shift + self.__hidden


class Scaler:
    def __init__(self) -> None:
        self.by = 1.0

    def scale(self, x: mx.array) -> mx.array:
        return x * self.by


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.act: Any = mx.tanh
        self.args, self.slotted = Args(constant=mx.array([1.0])), Slotted()
        self.on, self.frozen = {0}, frozenset((0,))
        self.queue = collections.deque([1.0])
        self.table = np.ones(2, np.float32)
        self.part = functools.partial(mx.add, 1.0)
        self.scaler = Scaler()
        self.method = self.scaler.scale
        self.proxy: Any = types.SimpleNamespace(inner=types.MappingProxyType({"a": 1.0}))
        self.settings: dict[str, Any] = {"rates": [1.0], "kind": 1}
        self.order = collections.OrderedDict(a=1.0, b=2.0)
        self.rng = random.Random(0)
        TRACES[id(self)] = 0

    @property
    def traces(self) -> int:
        return TRACES[id(self)]

    def __call__(self, x: mx.array) -> Any:
        TRACES[id(self)] += 1
        x = self.act(self.linear(x)) * self.args.scale + self.args.more["shifts"][0]
        x = x * self.args.constant + self.slotted.total() + len(self.on) + len(self.frozen)
        x = self.method(x) + sum(self.queue) + mx.array(self.table)
        x = self.part(x) + self.proxy.inner["a"] + self.settings["rates"][0]
        x = x + random.Random(str(self.rng.getstate())).random() + next(iter(self.order.values()))
        return x / (2 if self.settings["kind"] is True else 1)


def loss(model: Any, x: mx.array) -> Any:
    return model(x).sum()


def renew_act(model: Any) -> None:
    del model.act
    model.act = nn.ReLU()


def rename(model: Any) -> None:
    model.act = lambda x: x * 2


def write_in_place(model: Any) -> None:
    model.args.constant[0] = 3.0


CHANGES: dict[str, Callable[[Any], Any]] = {
    "a function": lambda model: setattr(model, "act", mx.sin),
    "a function of its own": rename,
    "a freed module": renew_act,
    "a dataclass": lambda model: setattr(model.args, "scale", 3.0),
    "another dataclass": lambda model: setattr(model, "args", Args(2.0, constant=mx.array([1.0]))),
    "in a dataclass's dict": lambda model: model.args.more["shifts"].__setitem__(0, 2.0),
    "an array of a dataclass": lambda model: setattr(model.args, "constant", mx.array([2.0])),
    "an array of a dataclass in place": write_in_place,
    "slots": lambda model: setattr(model.slotted, "shift", 4.0),
    "a private slot": lambda model: model.slotted.hide(5.0),
    "a set": lambda model: setattr(model, "on", {1, 2}),
    "a set in place": lambda model: model.on.add(7),
    "a frozenset": lambda model: setattr(model, "frozen", frozenset((1, 2, 3))),
    "a deque": lambda model: model.queue.append(3.0),
    "NumPy in place": lambda model: model.table.__setitem__(0, 5.0),
    "a partial": lambda model: setattr(model, "part", functools.partial(mx.add, 2.0)),
    "what a method is of": lambda model: setattr(model.scaler, "by", 2.0),
    "a proxy": lambda model: setattr(
        model.proxy, "inner", types.MappingProxyType({"a": 3.0})
    ),
    "a list in a dict": lambda model: model.settings["rates"].__setitem__(0, 9.0),
    "a truth for a number": lambda model: model.settings.__setitem__("kind", True),
    "the order of a dict": lambda model: model.order.move_to_end("a"),
    "a generator": lambda model: model.rng.random(),
    "a frozen layer": lambda model: model.linear.freeze(keys="bias"),
}  # fmt: skip


def flat(result: Any) -> list[Any]:
    value, gradients = result
    return [value.item(), *(np.array(a).tolist() for a in gradients["linear"].values())]


def counts_from_the_next_step_on(model: Any, change: Callable[[Any], Any]) -> None:
    compute, eager = CompiledLoss(model, loss), nn.value_and_grad(model, loss)
    before = flat(compute(model, X))
    compute.renew()
    assert flat(compute(model, X)) == before and TRACES[id(model)] == 1
    change(model)
    compute.renew()
    now = flat(compute(model, X))
    assert now == flat(eager(model, X)) != before


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_counts_from_the_next_step_on(name: str) -> None:
    counts_from_the_next_step_on(Model(), CHANGES[name])


def of_classes() -> Any:
    """A model that reads all that it has to read from classes: its own, its base's, that of an
    object, one that is held and one that its own holds."""

    class Held:
        by = 1.0

    class Options:
        shift = 1.0

    class Base(nn.Module):
        scales = [1.0]  # noqa: RUF012

    class Read(Base):
        power, act, held = 1.0, staticmethod(mx.tanh), Held
        offset = mx.array([1.0])

        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(2, 2)
            self.options, self.kind = Options(), Held
            TRACES[id(self)] = 0

        def __call__(self, x: mx.array) -> Any:
            TRACES[id(self)] += 1
            x = self.act(self.linear(x)) * self.scales[0] + self.options.shift + self.offset
            return x * self.power * self.held.by

    return Read()


OF_CLASSES: dict[str, Callable[[Any], Any]] = {
    "its own": lambda model: setattr(type(model), "power", 0.5),
    "in place, of a base": lambda model: model.scales.__setitem__(0, 2.0),
    "a function": lambda model: setattr(type(model), "act", staticmethod(mx.sin)),
    "an array": lambda model: setattr(type(model), "offset", mx.array([2.0])),
    "an array in place": lambda model: model.offset.__setitem__(0, 5.0),
    "an object's": lambda model: setattr(type(model.options), "shift", 2.0),
    "a class that is held": lambda model: setattr(model.kind, "by", 3.0),
}


@pytest.mark.parametrize("name", OF_CLASSES)
def test_a_change_of_a_class_counts_too(name: str) -> None:
    counts_from_the_next_step_on(of_classes(), OF_CLASSES[name])


def test_a_class_that_a_class_holds_counts_too() -> None:
    model = of_classes()
    del model.kind
    before = Picture(model)
    type(model).held.by = 3.0
    assert before.difference(Picture(model)) == "model.held.by"


def test_what_a_class_holds_besides_plain_values_is_compared_by_identity() -> None:
    model = of_classes()
    type(model).numbers = iter([1, 2])
    before = Picture(model)
    next(type(model).numbers)
    assert not before.unseen and not before.difference(Picture(model))
    type(model).numbers = iter([1, 2])
    assert before.difference(Picture(model)) == "model.numbers"


def test_the_id_of_what_is_gone_is_not_taken_for_another() -> None:
    model: Any = Model()
    compute = CompiledLoss(model, loss)
    for n in range(20):
        model.act = nn.Tanh() if n % 2 else nn.ReLU()
        compute.renew()
        assert flat(compute(model, X)) == flat(nn.value_and_grad(model, loss)(model, X))
        del model.act


def test_what_is_equal_is_traced_once() -> None:
    model: Any = Model()
    model.cycle = types.SimpleNamespace(model=model, itself=model.proxy)
    compute = CompiledLoss(model, loss)
    for _ in range(5):
        compute.renew()
        compute(model, X)
        model.on, model.settings = {0}, {"rates": [1.0], "kind": 1}
        model.queue, model.table = collections.deque([1.0]), np.ones(2, np.float32)
        model.linear.weight = model.linear.weight * 2
    assert model.traces == 1
    model.cycle = float("nan")
    assert not Picture(model).difference(Picture(model))


def unseen(model: Any) -> None:
    model.args.more["it"] = iter([1])


def long(model: Any) -> None:
    model.args.more["it"] = list(range(picture.MOST_VALUES + 1))


def deep(model: Any) -> None:
    model.args.more["it"] = []
    for _ in range(500):
        model.args.more["it"] = [model.args.more["it"]]


def large(model: Any) -> None:
    model.args.more["it"] = np.zeros(picture.MOST_BYTES + 1, np.uint8)


@pytest.mark.parametrize(
    "make, why",
    [
        (unseen, "model.args.more['it'] is a list_iterator, which can't be compared"),
        (long, "model.args.more holds more than 10000 values"),
        (deep, "is nested too deep"),
        (large, "model.args.more['it'] is an array of NumPy with more than"),
    ],
)
def test_what_can_not_be_compared_is_traced_in_each_step_and_named(
    make: Callable[[Any], None], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    model = Model()
    make(model)
    compute = CompiledLoss(model, loss)
    for _ in range(3):
        compute.renew()
        compute(model, X)
        compute(model, X)
    assert model.traces == 3
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and why in said and "each step" in said


def test_what_changes_in_each_step_is_named_once(capsys: pytest.CaptureFixture[str]) -> None:
    model = Model()
    compute = CompiledLoss(model, loss)
    for n in range(TOLD_AFTER + 5):
        compute.renew()
        compute(model, X)
        model.args.scale = 1.0 + n
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "since model.args.scale is another one each time" in said


def beside(model: Model) -> tuple[CompiledLoss, Namespace, dict[str, Any]]:
    """What reads ``run.state`` and a tracked dict, and those."""
    kept, settings = Namespace(), {"shift": 0.0}
    kept.factor, kept.steps, kept.table, kept.offset = 1.0, 0, {"power": [1.0]}, mx.array([0.0])

    def scaled(model: Any, x: mx.array) -> Any:
        found = model(x).sum() * kept.factor * kept.table["power"][0] + settings["shift"]
        return found + (kept.extra if "extra" in kept else 0.0) + kept.offset.sum()

    compute = CompiledLoss(model, scaled, kept=kept)
    compute.track("settings", settings)
    compute.track("unread", {"seen": 0})
    return compute, kept, settings


OF_STATE: dict[str, Callable[[Any, Any], Any]] = {
    "a number": lambda kept, settings: setattr(kept, "factor", 2.0),
    "in a dict": lambda kept, settings: kept.table["power"].__setitem__(0, 2.0),
    "an array": lambda kept, settings: setattr(kept, "offset", mx.array([1.0])),
    "an array in place": lambda kept, settings: kept.offset.__setitem__(0, 2.0),
    "one that wasn't there": lambda kept, settings: setattr(kept, "extra", 2.0),
    "another state": lambda kept, settings: kept.load_state_dict(
        {"values": {**kept.state_dict()["values"], "factor": 5.0}, "generators": {}}
    ),
    "what is tracked": lambda kept, settings: settings.update(shift=2.0),
}


@pytest.mark.parametrize("name", OF_STATE)
def test_a_change_of_the_state_that_it_reads_counts_for_shapes_that_it_knows(name: str) -> None:
    compute, kept, settings = beside(model := Model())
    shapes = X, mx.concatenate([X, X])
    before = [compute(model, x)[0].item() for x in shapes]
    compute.renew()
    assert [compute(model, x)[0].item() for x in shapes] == before and model.traces == 2
    OF_STATE[name](kept, settings)
    compute.renew()
    assert all(compute(model, x)[0].item() != was for x, was in zip(shapes, before, strict=True))
    assert model.traces == 4


def test_state_that_it_does_not_read_makes_no_trace() -> None:
    compute, kept, _ = beside(model := Model())
    for n in range(3):
        compute.renew()
        compute(model, X)
        kept.steps, kept.best = kept.steps + 1, [n]
        assert kept.state_dict()["values"]["steps"] == n + 1
    assert model.traces == 1


def test_state_that_changes_in_each_step_is_named_once(capsys: pytest.CaptureFixture[str]) -> None:
    compute, kept, _ = beside(model := Model())
    for n in range(TOLD_AFTER + 5):
        compute.renew()
        compute(model, X)
        kept.table["power"][0] = 1.0 + n
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "since run.state.table['power'][0] is another one each time" in said
