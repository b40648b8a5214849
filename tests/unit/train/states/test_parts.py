"""What members compare of their states names each thing that the script tracks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np
import pytest

from elasticd.checkpoints import integrity
from elasticd.train.states.namespace import Namespace
from elasticd.train.states.parts import Comparable, told
from elasticd.train.states.state import TrainingState
from elasticd.train.states.tracked import STATE
from elasticd.types import Lineage, Point, Stamp

POINT = Point(Lineage("1"), 1, Stamp("s"))


def told_of(change: Callable[[Any], object] | None = None) -> Comparable:
    model = nn.Linear(2, 2)
    model.update({"weight": mx.ones((2, 2)), "bias": mx.zeros((2,))})
    optimizer = optim.Adam(0.1)
    optimizer.init(model.trainable_parameters())
    state = TrainingState(model, optimizer)
    kept = Namespace()
    seen = {"count": 3, "mean": mx.ones((2,)), "deep": [np.arange(3)]}
    state.track(STATE, kept)
    if change is not None:
        kept.beta, kept.queue = 0.5, [mx.zeros((3,))]
        state.track("seen", seen)
        change({"seen": seen, "kept": kept, "model": model})
    return told(state.capture(POINT, 0, 0))


def test_where_nothing_is_tracked_there_is_the_model_alone() -> None:
    found = told_of()
    assert found.parts == () and found.check


def test_things_have_the_names_that_people_know() -> None:
    found = told_of(lambda things: None)
    names = [name for name, _ in found.parts]
    assert names == ["model", "run.state.beta", "run.state.queue", "run.track('seen', …)"]
    assert found == told_of(lambda things: None)


CHANGES: dict[str, tuple[str, Callable[[Any], object]]] = {
    "a number": ("run.track('seen', …)", lambda t: t["seen"].update(count=4)),
    "an array": ("run.track('seen', …)", lambda t: t["seen"].update(mean=mx.zeros((2,)))),
    "a deep one": ("run.track('seen', …)", lambda t: t["seen"].update(deep=[np.arange(1, 4)])),
    "a value": ("run.state.beta", lambda t: setattr(t["kept"], "beta", 0.25)),
    "its array": ("run.state.queue", lambda t: setattr(t["kept"], "queue", [mx.ones((3,))])),
    "a parameter": ("model", lambda t: t["model"].update({"bias": mx.ones((2,))})),
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_differs_is_told_and_nothing_else(what: str) -> None:
    name, change = CHANGES[what]
    one, other = told_of(lambda things: None), told_of(change)
    assert one.check != other.check
    differ = [
        mine[0] for mine, theirs in zip(one.parts, other.parts, strict=True) if mine != theirs
    ]
    assert differ == [name]


def test_digests_that_are_known_change_nothing() -> None:
    model = nn.Linear(2, 2)
    state = TrainingState(model, None)
    state.track("seen", {"mean": mx.ones((2,))})
    snapshot = state.capture(POINT, 0, 0)
    known = {}
    for name, array in snapshot.tensors.items():
        hasher = integrity.tensor_hasher()
        hasher.update(memoryview(array).cast("B"))  # type: ignore[arg-type]
        known[name] = hasher.hexdigest()
    assert told(snapshot, known) == told(snapshot)
