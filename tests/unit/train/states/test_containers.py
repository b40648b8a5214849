"""An optimizer's state is put back whole, or not at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import pytest
from mlx.utils import tree_map

from elasticd.errors import MismatchError
from elasticd.train.states.containers import put_state
from elasticd.train.states.state import Loaded, TrainingState
from elasticd.types import Lineage, Point, Stamp
from tests.unit.train.states.test_round_trips import same


def first_of(parts: int, rate: float, *, inner: int = 0) -> tuple[Any, Any]:
    """A MultiOptimizer of so many, the last of which is one of ``inner``; and its first part."""
    joined: list[Any] = [optim.Adam(rate), *(optim.SGD(rate, momentum=0.9) for _ in range(parts))]
    if inner:
        joined[-1] = first_of(inner, rate)[0]
    made = optim.MultiOptimizer(joined, [lambda path, _: path == "bias"] * parts)
    made.init(nn.Linear(2, 2).trainable_parameters())
    return made, joined[0]


@pytest.mark.parametrize(
    ("saved", "says"),
    [
        (first_of(2, 0.5)[0].state, "a MultiOptimizer of 2 is here, .* of a MultiOptimizer of 3"),
        (first_of(1, 0.5, inner=2)[0].state, "of 2 is here, .* of a MultiOptimizer of 3"),
        (optim.Adam(0.5).state, "a MultiOptimizer of 2 is here, .* that of another optimizer"),
        ([], "another optimizer"),
    ],
)
def test_a_state_of_other_parts_is_refused_before_any_is_put(saved: Any, says: str) -> None:
    optimizer, first = first_of(1, 0.25, inner=1)
    before = [optimizer.state["states"][0], first.learning_rate]
    with pytest.raises(MismatchError, match=says):
        put_state(optimizer, saved)
    assert before[0] is first.state and first.learning_rate.item() == 0.25
    other, _ = first_of(1, 0.5, inner=1)
    put_state(optimizer, other.state)
    assert before[0] is first.state and mx.array_equal(first.learning_rate, mx.array(0.5))


POINT = Point(Lineage("job"), 1, Stamp("stamp"))


class Keeping(optim.Optimizer):
    """Its updates keep something of each parameter."""

    def __init__(self, first: Callable[[], dict[str, Any]], keep: Callable[[Any, Any], None]):
        super().__init__()
        self._first, self._keep = first, keep

    def init_single(self, parameter: mx.array, state: dict[str, Any]) -> None:
        state.update(self._first())

    def apply_single(self, gradient: mx.array, parameter: mx.array, state: Any) -> mx.array:
        self._keep(state, gradient.mean())
        return parameter - 0.1 * gradient


class Factored(optim.Optimizer):
    """Keeps another thing of matrices than of vectors."""

    def init_single(self, parameter: mx.array, state: dict[str, Any]) -> None:
        rows, columns = mx.zeros(parameter.shape[:1]), mx.zeros(parameter.shape[1:])
        state.update(
            {"f": {"rows": rows, "columns": columns}} if parameter.ndim > 1 else {"v": rows}
        )

    def apply_single(self, gradient: mx.array, parameter: mx.array, state: Any) -> mx.array:
        if "f" in state:
            state["f"]["rows"] += gradient.mean(axis=1)
        return parameter - 0.1 * gradient


def slowly(state: Any, mean: mx.array) -> None:
    state.setdefault("slow", {"means": []})["means"].append(mean)


def drop_one(state: Any, mean: mx.array) -> None:
    del state["h"][:1]


def in_turn(state: Any, mean: mx.array) -> None:
    state["h"] = None if isinstance(state["h"], list) else [mean]


KEEPING: dict[str, Callable[[], optim.Optimizer]] = {
    "list": lambda: Keeping(lambda: {"h": []}, lambda s, m: s.update(h=[*s["h"], m][-3:])),
    "long list": lambda: Keeping(lambda: {"h": []}, lambda s, m: s["h"].append(m)),
    "numbers": lambda: Keeping(lambda: {"h": []}, lambda s, m: s["h"].append(m.item())),
    "pairs": lambda: Keeping(lambda: {"h": []}, lambda s, m: s["h"].append((m, {"twice": 2 * m}))),
    "tuple": lambda: Keeping(lambda: {"h": ()}, lambda s, m: s.update(h=(*s["h"], m)[-3:])),
    "shorter": lambda: Keeping(lambda: {"h": [mx.array(0.0)] * 3}, drop_one),
    "late": lambda: Keeping(dict, slowly),
    "in turn": lambda: Keeping(lambda: {"h": None}, in_turn),
    "joined": lambda: optim.MultiOptimizer(
        [KEEPING["pairs"](), KEEPING["list"]()], [lambda path, _: "bias" in path]
    ),
}


def filled(model: nn.Module, value: float) -> Any:
    return tree_map(lambda parameter: mx.full(parameter.shape, value), model.parameters())


def kept(name: str, updates: int) -> TrainingState:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    state = TrainingState(model, KEEPING[name]())
    for number in range(updates):
        state.update(filled(model, number + 1.0))
    return state


@pytest.mark.parametrize(("updates", "before"), [(0, 4), (2, 0), (2, 4), (5, 2), (12, 0), (1, 12)])
@pytest.mark.parametrize("name", KEEPING)
def test_what_an_optimizer_keeps_of_each_update_comes_back(
    name: str, updates: int, before: int
) -> None:
    """It may be more or less than there was."""
    one, other = kept(name, updates), kept(name, before)
    saved = one.capture(POINT, 0, 1)
    other.install(Loaded.from_files(saved.tensors, saved.metadata()))
    assert one.optimizer is not None and other.optimizer is not None
    assert same(other.optimizer.state, one.optimizer.state)
    for state in (one, other):
        state.update(filled(state.model, 0.5))
    assert same(other.optimizer.state, one.optimizer.state)


def test_what_it_makes_for_a_kind_of_parameter_that_is_frozen_at_first_comes_back() -> None:
    def made(updates: int) -> TrainingState:
        model = nn.Linear(3, 2)
        model.freeze()
        model.unfreeze(keys=["bias"])
        state = TrainingState(model, Factored())
        model.unfreeze()
        for _ in range(updates):
            state.update(filled(model, 1.0))
        return state

    one, other = made(2), made(0)
    saved = one.capture(POINT, 0, 1)
    assert any(name.endswith("weight.f.rows") for name in saved.tensors), "as releases before do"
    other.install(Loaded.from_files(saved.tensors, saved.metadata()))
    assert one.optimizer is not None and other.optimizer is not None
    assert same(other.optimizer.state, one.optimizer.state)


def test_what_a_loop_keeps_in_the_state_of_an_optimizer_comes_back() -> None:
    def made() -> tuple[TrainingState, Any]:
        optimizer = optim.SGD(0.1, momentum=0.9)
        return TrainingState(nn.Linear(2, 2), optimizer), optimizer.state

    (one, state), (other, theirs) = made(), made()
    before = one.own()
    state["seen"] = {"losses": [mx.array(1.0), 2]}
    assert before.changed_to(one.own()) is None  # a newcomer gets it with all the rest
    other.install(Loaded.of(one.capture(POINT, 0, 1)))
    assert same(theirs["seen"], state["seen"])
    other.install(Loaded.of(made()[0].capture(POINT, 0, 1)))
    assert "seen" not in theirs


def test_numbers_of_another_optimizer_are_not_lost() -> None:
    def keeping(name: str) -> TrainingState:
        return TrainingState(nn.Linear(2, 2), Keeping(lambda: {name: 1}, lambda state, mean: None))

    saved = Loaded.of(keeping("n").capture(POINT, 0, 1))
    with pytest.raises(MismatchError, match=r"optimizer: 'bias\.m' is here only"):
        keeping("m").install(saved)
