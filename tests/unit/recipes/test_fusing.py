"""A compiled update is the optimizer's own, and has the same bits whoever takes up a state."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import pytest
from mlx.utils import tree_flatten

from elasticd.recipes.fusing import fused
from elasticd.train.states.trees import slots
from tests.gallery.cards import Card
from tests.gallery.quick import digests

KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "adam": (optim.Adam, {"bias_correction": True}),
    "adamw": (optim.AdamW, {"weight_decay": 0.1}),
    "muon": (optim.Muon, {}),
    "sgd": (optim.SGD, {"momentum": 0.9}),
    "adafactor": (optim.Adafactor, {"relative_step": False, "beta_1": 0.9}),
}


def model() -> nn.Module:
    mx.random.seed(3)
    made = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    made.layers[0].freeze(keys=["bias"])
    return made


def made(name: str, of: Any = fused) -> Any:
    kind, arguments = KINDS[name]
    return of(kind)(learning_rate=optim.linear_schedule(1e-2, 1e-3, 5), **arguments)


def trained(layers: nn.Module, optimizer: Any, steps: range) -> dict[str, mx.array]:
    """What an optimizer makes of the model in these steps; all of its state besides."""
    for step in steps:
        x = mx.random.normal((6, 4), key=mx.random.key(step))
        _, grads = nn.value_and_grad(layers, lambda m, x: (m(x) ** 2).sum())(layers, x)
        optimizer.update(layers, grads)
        mx.eval(layers.parameters(), optimizer.state)
    found: Any = tree_flatten({"model": layers.parameters(), "optimizer": optimizer.state})
    return dict(found)


@pytest.mark.parametrize("name", KINDS)
def test_it_is_the_optimizers_own_update(name: str) -> None:
    one = trained(model(), made(name), range(6))
    other = trained(model(), made(name, of=lambda kind: kind), range(6))
    assert one.keys() == other.keys()
    for path, array in one.items():
        assert array.dtype == other[path].dtype, path
        assert mx.allclose(array, other[path], rtol=1e-4, atol=1e-6).item(), path


@pytest.mark.parametrize("name", KINDS)
def test_who_is_given_the_state_goes_on_with_the_same_bits(name: str) -> None:
    """In place, as states are put into a process, into one that has made an update and one that
    hasn't."""
    layers, optimizer = model(), made(name)
    trained(layers, optimizer, range(3))
    held = [slots(layers.state), slots(optimizer.state)]
    kept = [{path: mx.array(slot.value) for path, slot in each.items()} for each in held]
    expected = trained(layers, optimizer, range(3, 6))
    for before in (0, 2):
        taker, fresh = model(), made(name)
        fresh.init(taker.trainable_parameters())
        trained(taker, fresh, range(before))
        for places, values in zip((slots(taker.state), slots(fresh.state)), kept, strict=True):
            for path, value in values.items():
                places[path].put(value)
        found = trained(taker, fresh, range(3, 6))
        assert found.keys() == expected.keys()
        assert all(mx.array_equal(found[path], array).item() for path, array in expected.items())


def test_another_state_in_its_place_counts() -> None:
    one, other = made("sgd"), made("sgd")
    layers = model()
    trained(layers, one, range(2))
    one.state = {"step": mx.array(0, mx.uint64), "learning_rate": mx.array(0.0)}
    trained(layers, one, range(1))
    assert one.step.item() == 1 and other.step.item() == 0


def test_it_keeps_nothing_and_has_the_same_name() -> None:
    plain, compiled = made("adam", of=lambda kind: kind), made("adam")
    trained(model(), compiled, range(1))
    assert type(compiled).__name__ == "Adam" and isinstance(compiled, optim.Adam)
    assert vars(compiled).keys() == vars(plain).keys()


def test_where_mlx_compiles_nothing_it_is_the_plain_update() -> None:
    other = trained(model(), made("adam", of=lambda kind: kind), range(3))
    mx.disable_compile()
    try:
        one = trained(model(), made("adam"), range(3))
    finally:
        mx.enable_compile()
    assert all(mx.array_equal(one[path], array).item() for path, array in other.items())


SCRIPT = """
import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import elasticd
from elasticd.recipes.fusing import fused

data = [(x, x.sum(keepdims=True)) for x in mx.random.normal((64, 4))]
run = elasticd.Run(
    model=nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)), data=data, clip_norm=1.0,
    optimizer=fused(optim.AdamW)(learning_rate=optim.cosine_decay(1e-2, 30)),
    loss=lambda model, x, y: nn.losses.mse_loss(model(x), y),
)
for step in run:
    pass
"""


@dataclass(frozen=True)
class Script(Card):
    def lay_out(self, folder: Path) -> Path:
        folder.mkdir(parents=True)
        (folder / "train.py").write_text(SCRIPT)
        tables: dict[str, list[str]] = {}
        for key, value in self.all_settings.items():
            table, _, name = key.partition(".")
            tables.setdefault(table, []).append(f"{name} = {json.dumps(value)}")
        text = [line for table, rows in tables.items() for line in (f"[{table}]", *rows)]
        (folder / "job.toml").write_text("\n".join(text) + "\n")
        return folder / "job.toml"


def test_a_job_has_the_same_bits_whoever_dies(tmp_path: Path) -> None:
    card, dice = Script("fused", "a compiled update"), random.Random(5)
    (alone,) = digests(card, tmp_path / "alone", "a", {}, "x")
    for seed in "yz":
        kills = {rank: dice.randrange(10, 90) for rank in "ab"}
        lived = digests(card, tmp_path / seed, "abc", kills, seed)
        assert len(lived) >= 2 and set(lived) == {alone}
