from __future__ import annotations

import math
from typing import Any

import mlx.core as mx
import pytest

from elasticd.errors import StateError, UsageError
from elasticd.train.steps.accumulate import add
from elasticd.train.steps.layout import Layout
from elasticd.train.steps.weighted import GrainLoss

GRADIENTS = {"a": mx.array([1.0, 2.0]), "b": [mx.array([[4.0]], mx.bfloat16)]}
PARAMETERS = {"a": mx.zeros((2,), mx.float16), "b.0": mx.zeros((1, 1), mx.bfloat16)}
STATE = {"mean": mx.array([10.0], mx.float16), "n": mx.array(3, mx.int64), "on": mx.array(True)}


def given(mean: float, weight: float, **metrics: float) -> GrainLoss:
    """A loss, whose weight is a number of samples if it is a whole number."""
    shown = {name: mx.array(value) for name, value in metrics.items()}
    return GrainLoss(mx.array(mean), mx.array(float(weight)), isinstance(weight, int), shown)


BASE = {name: array + 1 if name != "on" else ~array for name, array in STATE.items()}


def layout() -> Layout:
    return Layout.of(GRADIENTS, PARAMETERS, STATE)


def pack(kind: Layout, loss: GrainLoss, state: Any, gradients: Any) -> list[mx.array]:
    return kind.pack(loss, BASE, state, kind.given(gradients))


def test_means_are_weighted_and_come_back_in_shape_and_dtype() -> None:
    kind = layout()
    other = {"a": mx.array([3.0, 6.0]), "b": [mx.array([[8.0]], mx.bfloat16)]}
    total = add(
        pack(kind, given(2.0, 1), STATE, GRADIENTS),
        pack(kind, given(6.0, 3.0), STATE, other),
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
    vector = pack(kind, given(2.0, 5), STATE, GRADIENTS)
    pieces = kind.split(mx.concatenate(vector))
    assert sum(kind.lengths) == kind.size
    assert [piece.tolist() for piece in pieces] == [piece.tolist() for piece in vector]


@pytest.mark.parametrize("value", [2, 4, -3, 3 + 2**40])
def test_integer_state_that_differs_is_named(value: int) -> None:
    kind = layout()
    odd = {**STATE, "n": mx.array(value, mx.int64)}
    total = add(
        pack(kind, given(2.0, 1), STATE, GRADIENTS), pack(kind, given(2.0, 1), odd, GRADIENTS)
    )
    with pytest.raises(StateError, match=r"n is .*int64 and differs"):
        kind.mean(total, grains=2)


NAN = {"a": mx.array([math.nan, 1.0]), "b": [mx.array([[math.inf]], mx.bfloat16)]}


def test_what_has_no_weight_counts_as_nothing_whatever_its_values() -> None:
    kind = Layout.of(GRADIENTS, PARAMETERS, STATE, ["share"])
    empty = given(math.nan, 0.0, share=math.nan)
    state = {**STATE, "mean": mx.array([math.nan], mx.float16)}
    parts = [(given(2.0, 1.0, share=0.5), STATE, GRADIENTS), (empty, state, NAN)]
    first, second = (pack(kind, *part) for part in parts)
    reduced = kind.mean(add(first, second), grains=2)
    assert (reduced.loss, reduced.weight, reduced.metrics) == (2.0, 1.0, {"share": 0.5})
    assert reduced.gradients["a"].tolist() == [1.0, 2.0]
    assert reduced.state["mean"].tolist() == [10.0]
    nothing = kind.mean(pack(kind, empty, state, NAN), grains=1)
    assert math.isnan(nothing.loss) and math.isnan(nothing.metrics["share"])
    assert nothing.gradients["a"].tolist() == [0.0, 0.0]


def test_a_gradient_that_is_not_finite_is_named() -> None:
    """As it is handed back: float16 ends at 65504. A sum of many that are finite is none."""
    kind = Layout.of(
        {"a": mx.zeros((4,)), "b": mx.zeros((4,))}, {"b": mx.zeros((4,), mx.float16)}, {}
    )
    fine = mx.full((4,), 3e38)
    for a, b, wrong in [
        (fine, mx.full((4,), 6e4), ""),
        (fine, mx.full((4,), 7e4), "b"),
        (mx.array([1.0, math.nan, 0.0, 0.0]), mx.zeros((4,)), "a"),
        (mx.array([math.inf, -math.inf, 0.0, 0.0]), mx.zeros((4,)), "a"),
    ]:
        gradients = kind.given({"a": a, "b": b})
        total = kind.pack(given(1.0, 1), {}, {}, gradients)
        assert kind.mean(total, grains=1, finite=True).not_finite == wrong
        assert not kind.mean(total, grains=1).not_finite


def test_other_metrics_are_named() -> None:
    kind = Layout.of(GRADIENTS, PARAMETERS, STATE, ["share"])
    with pytest.raises(UsageError, match="other metrics than before: hits, share"):
        pack(kind, given(1.0, 1, hits=1.0), STATE, GRADIENTS)


def test_other_gradients_are_named() -> None:
    kind = layout()
    with pytest.raises(UsageError, match="other gradients than before: c"):
        pack(kind, given(1.0, 1), STATE, {**GRADIENTS, "c": mx.array(1.0)})
    with pytest.raises(UsageError, match=r"gradient of a with shape \(2,\)"):
        pack(kind, given(1.0, 1), STATE, {**GRADIENTS, "a": mx.array(1.0)})


@pytest.mark.parametrize(
    "dtype, cure",
    [
        (mx.int32, "let it and its parameter be float32"),
        (mx.float64, "let it and its parameter be float32"),
        (mx.complex64, "keep the parameter as two arrays of float32, its real and its imaginary"),
    ],
)
def test_a_gradient_that_can_not_be_summed_is_named_with_its_cure(
    dtype: mx.Dtype, cure: str
) -> None:
    with mx.stream(mx.cpu):
        gradient = mx.ones(2, dtype)
    with pytest.raises(UsageError) as raised:
        Layout.of({"a": gradient}, {}, {})
    kind = str(dtype).rpartition(".")[2]
    assert str(raised.value).startswith(
        f"the gradient of a is {kind}[2]; only float32, bfloat16 and float16 can be summed: {cure}"
    )


def test_state_of_another_shape_is_named() -> None:
    with pytest.raises(UsageError, match=r"made float16\[2\] of mean"):
        pack(layout(), given(1.0, 1), {**STATE, "mean": mx.zeros((2,), mx.float16)}, GRADIENTS)


def test_the_digest_names_the_changing_state() -> None:
    assert layout().digest() != Layout.of(GRADIENTS, PARAMETERS, {}).digest()
