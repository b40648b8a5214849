"""What a script keeps in ``run.state``, and the moving average."""

from __future__ import annotations

import json
import random
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest

import elasticd
from elasticd.errors import MismatchError, UsageError
from elasticd.train.states.namespace import Namespace
from elasticd.train.states.trees import put_together, take_apart


def through_a_file(kept: Namespace) -> Namespace:
    """What a successor has."""
    tensors: dict[str, mx.array] = {}
    plain = json.loads(json.dumps(take_apart(kept.state_dict(), "user/", tensors)))
    made = Namespace()
    made.only_here = 1
    made.load_state_dict(put_together(plain, tensors))
    return made


def test_what_is_kept_comes_back() -> None:
    kept = Namespace()
    kept.best, kept.name, kept.nothing = 0.25, "x", None
    kept.seen = {"a": [mx.array([1.0, 2.0]), (3, True)], 5: np.arange(3)}
    found = through_a_file(kept)
    assert (found.best, found.name, found.nothing) == (0.25, "x", None)
    assert found.seen["a"][0].tolist() == [1, 2] and found.seen["a"][1] == (3, True)
    assert found.seen[5].tolist() == [0, 1, 2]
    assert "best" in found and "only_here" not in found


@pytest.mark.parametrize("made", [np.random.PCG64, np.random.Philox, np.random.MT19937])
def test_generators_go_on_where_they_were(made: Any) -> None:
    kept = Namespace()
    kept.rng, kept.dice = np.random.Generator(made(7)), random.Random(7)
    kept.rng.normal()
    kept.dice.gauss(0, 1)
    found = through_a_file(kept)
    assert found.rng.normal() == kept.rng.normal()
    assert found.dice.gauss(0, 1) == kept.dice.gauss(0, 1)


def test_what_can_not_be_kept_is_refused_when_it_is_assigned() -> None:
    kept = Namespace()
    with pytest.raises(UsageError, match=r"run\.state\.file.*can't be stored"):
        kept.file = open
    with pytest.raises(UsageError, match=r"run\.state\.deep\.rows\.0"):
        kept.deep = {"rows": [object()]}
    assert "file" not in kept and "deep" not in kept


@pytest.mark.parametrize("name", ["generators", "state_dict", "load_state_dict"])
def test_a_name_that_could_not_be_read_back_is_refused(name: str) -> None:
    kept = Namespace()
    with pytest.raises(UsageError, match=rf"run\.state\.{name} has another meaning"):
        setattr(kept, name, 1)
    assert kept.state_dict() == {"values": {}, "generators": {}}


def test_what_is_missing_is_told_with_the_cure() -> None:
    kept = Namespace()
    with pytest.raises(AttributeError, match=r"no 'beta'; assign it between Run"):
        _ = kept.beta
    assert getattr(kept, "beta", 3) == 3
    kept.beta = 1
    del kept.beta
    with pytest.raises(AttributeError):
        del kept.beta


def test_an_average_follows_the_model_and_lends_itself_to_it() -> None:
    model: Any = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm(2))
    model.layers[0].set_dtype(mx.bfloat16)
    ema = elasticd.EMA(model, 0.75)
    model.layers[0].weight = mx.zeros((2, 2), mx.bfloat16)
    before = ema.state_dict()["layers.0.weight"]
    ema.update()
    after = ema.state_dict()["layers.0.weight"]
    assert after.dtype == mx.float32 and mx.allclose(after, before * 0.75)
    with pytest.raises(RuntimeError), ema.applied():
        assert mx.array_equal(model.layers[0].weight, after.astype(mx.bfloat16))
        raise RuntimeError
    assert not model.layers[0].weight.any() and model.layers[0].weight.dtype == mx.bfloat16


def test_an_average_of_another_model_is_refused() -> None:
    ema = elasticd.EMA(nn.Linear(2, 2), 0.5)
    with pytest.raises(MismatchError):
        ema.load_state_dict(elasticd.EMA(nn.Linear(3, 2), 0.5).state_dict())
    for decay in (1.5, "0.9", float("nan")):
        with pytest.raises(UsageError, match="decay"):
            elasticd.EMA(nn.Linear(2, 2), decay)  # type: ignore[arg-type]
    parameters: Any = nn.Linear(2, 2).parameters()
    with pytest.raises(UsageError, match="is a dict, not an mlx"):
        elasticd.EMA(parameters, 0.5)
