from __future__ import annotations

import mlx.core as mx
import pytest

from elasticd.errors import StateError, UsageError
from elasticd.train.steps.accumulate import add
from elasticd.train.steps.layout import Layout

GRADIENTS = {"a": mx.array([1.0, 2.0]), "b": [mx.array([[4.0]], mx.bfloat16)]}
PARAMETERS = {"a": mx.zeros((2,), mx.float16), "b.0": mx.zeros((1, 1), mx.bfloat16)}
STATE = {"mean": mx.array([10.0], mx.float16), "n": mx.array(3, mx.int64), "on": mx.array(True)}


def layout() -> Layout:
    return Layout.of(GRADIENTS, PARAMETERS, STATE)


def test_means_are_weighted_and_come_back_in_shape_and_dtype() -> None:
    kind = layout()
    other = {"a": mx.array([3.0, 6.0]), "b": [mx.array([[8.0]], mx.bfloat16)]}
    total = add(
        kind.pack(mx.array(2.0), 1, STATE, GRADIENTS),
        kind.pack(mx.array(6.0), mx.array(3.0), STATE, other),
    )
    reduced = kind.mean(total, grains=2)
    assert (reduced.loss, reduced.weight) == (5.0, 4.0)
    assert reduced.gradients["a"].tolist() == [2.5, 5.0]
    assert reduced.gradients["a"].dtype == mx.float16
    assert reduced.gradients["b"][0].tolist() == [[7.0]]
    assert reduced.gradients["b"][0].dtype == mx.bfloat16
    assert reduced.state["mean"].tolist() == [10.0]
    assert reduced.state["mean"].dtype == mx.float16
    assert reduced.state["n"].item() == 3 and reduced.state["n"].dtype == mx.int64
    assert reduced.state["on"].item() is True and reduced.state["on"].shape == ()


def test_a_flat_vector_splits_into_the_same_pieces() -> None:
    kind = layout()
    vector = kind.pack(mx.array(2.0), 5, STATE, GRADIENTS)
    pieces = kind.split(mx.concatenate(vector))
    assert sum(kind.lengths) == kind.size
    assert [piece.tolist() for piece in pieces] == [piece.tolist() for piece in vector]


@pytest.mark.parametrize("value", [2, 4, -3, 3 + 2**40])
def test_integer_state_that_differs_is_named(value: int) -> None:
    kind = layout()
    odd = {**STATE, "n": mx.array(value, mx.int64)}
    total = add(
        kind.pack(mx.array(2.0), 1, STATE, GRADIENTS), kind.pack(mx.array(2.0), 1, odd, GRADIENTS)
    )
    with pytest.raises(StateError, match=r"n is .*int64 and differs"):
        kind.mean(total, grains=2)


def test_no_weight_at_all_is_an_error() -> None:
    kind = layout()
    with pytest.raises(StateError, match="weight"):
        kind.mean(kind.pack(mx.array(2.0), 0, STATE, GRADIENTS), grains=1)


def test_other_gradients_are_named() -> None:
    kind = layout()
    with pytest.raises(UsageError, match="other gradients than before: c"):
        kind.pack(mx.array(1.0), 1, STATE, {**GRADIENTS, "c": mx.array(1.0)})
    with pytest.raises(UsageError, match=r"gradient of a with shape \(2,\)"):
        kind.pack(mx.array(1.0), 1, STATE, {**GRADIENTS, "a": mx.array(1.0)})
    with pytest.raises(UsageError, match="gradient of a is int32"):
        Layout.of({"a": mx.array(1)}, {}, {})


def test_state_of_another_shape_is_named() -> None:
    with pytest.raises(UsageError, match=r"made float16\[2\] of mean"):
        layout().pack(mx.array(1.0), 1, {**STATE, "mean": mx.zeros((2,), mx.float16)}, GRADIENTS)


def test_the_digest_names_the_changing_state() -> None:
    assert layout().digest() != Layout.of(GRADIENTS, PARAMETERS, {}).digest()
