"""What a loss may return, and which arguments it is given."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
import pytest

import elasticd
from elasticd.errors import UsageError
from elasticd.train.steps.weighted import loss_of, spread_lengths


def test_a_mean_weighs_as_much_as_its_samples() -> None:
    for mean in (mx.array([2.0]), 2.0, np.float32(2)):
        found = loss_of(mean, 5, None, None)
        assert (found.mean.item(), found.weight.item(), found.counted) == (2.0, 5.0, True)
        assert found.mean.shape == () and not found.metrics


def test_a_weight_may_come_with_the_loss_or_beside_it() -> None:
    together = loss_of(elasticd.Weighted(mx.array(2.0), mx.array(3), {"hits": 1}), 5, None, None)
    beside = loss_of(mx.array(2.0), 5, mx.array([3.0]), {"hits": mx.array([1.0])})
    for found in (together, beside):
        assert (found.weight.item(), found.counted) == (3.0, False)
        assert {name: value.item() for name, value in found.metrics.items()} == {"hits": 1.0}
    with pytest.raises(UsageError, match="for a loss that is no elasticd"):
        loss_of(elasticd.Weighted(2.0, 3), 5, 3, None)


@pytest.mark.parametrize(
    ("loss", "weight", "metrics", "says"),
    [
        ((mx.array(1.0), mx.array(0.5)), None, None, "a tuple of 2 values; return the mean alone"),
        ([1.0, 2.0, 3.0], None, None, "a list of 3 values"),
        (mx.zeros((2,)), None, None, r"the loss has shape \(2,\)"),
        (None, None, None, "the loss is a NoneType; it must be one number"),
        (1.0, "heavy", None, "the weight is a str"),
        (1.0, -2, None, r"a batch's weight is -2\.0; it must be a finite number from 0"),
        (1.0, np.float32("nan"), None, "a batch's weight is nan"),
        (elasticd.Weighted(1.0, float("inf")), None, None, "a batch's weight is inf"),
        (1.0, None, {"hits": mx.zeros((3,))}, r"metric 'hits' has shape \(3,\)"),
        (1.0, None, [1.0], "metrics of a loss are a list, not a dict"),
    ],
)
def test_what_a_loss_may_not_return(loss: Any, weight: Any, metrics: Any, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        loss_of(loss, 5, weight, metrics)


def test_a_tuple_is_spread_where_the_loss_asks_for_so_many() -> None:
    assert list(spread_lengths(lambda model, batch: 0)) == []
    assert list(spread_lengths(lambda model, batch, scale=1.0: 0)) == []
    assert list(spread_lengths(lambda model, x, y: 0)) == [2]
    assert list(spread_lengths(lambda model, x, y, mask=None: 0)) == [2, 3]
    assert 7 in spread_lengths(lambda model, *batch: 0)

    def compiled(model: Any, x: Any, y: Any) -> Any:
        return x

    assert list(spread_lengths(mx.compile(compiled))) == [2]
