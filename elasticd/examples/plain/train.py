"""Data parallel training as it is written for mlx.launch. Nothing in it is elasticd's.

Each rank computes its share of a batch, and gradients are averaged. Rank 0 saves a checkpoint now
and then; whoever begins with one there goes on from it. So the same script survives under elasticd,
which begins it anew where it breaks.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
from mlx.utils import tree_flatten, tree_unflatten

CHECKPOINTS, COMING = Path("ckpt"), "coming.safetensors"
BATCH = 64


def batch_of(step: int, world: mx.distributed.Group) -> tuple[mx.array, mx.array]:
    """This rank's share of a step's batch: points, and in which of two spirals each lies."""
    key = mx.random.split(mx.random.key(step), world.size())[world.rank()]
    share = BATCH // world.size()
    labels = mx.arange(share) % 2
    turn = 5 * mx.random.uniform(shape=(share,), key=key)
    angle = turn + labels * 3.1416
    return mx.stack([turn * mx.cos(angle), turn * mx.sin(angle)], axis=1), labels


def loss_fn(model: nn.Module, points: mx.array, labels: mx.array) -> mx.array:
    return nn.losses.cross_entropy(model(points), labels, reduction="mean")


def load(state: Any, world: mx.distributed.Group) -> tuple[Any, int]:
    """The state and step of rank 0's newest checkpoint, for all ranks; without one, as it is."""
    step, saved = 0, dict[str, mx.array]()
    if world.rank() == 0 and (found := sorted(CHECKPOINTS.glob("*.safetensors"))):
        loaded: Any = mx.load(str(found[-1]))
        step, saved = int(found[-1].stem), loaded

    def of_rank_0(array: mx.array) -> mx.array:
        mine = array if world.rank() == 0 else mx.zeros_like(array)
        told = mx.distributed.all_sum(mine, stream=mx.cpu)
        mx.eval(told)  # ranks have to sum the same at the same time, one array after another
        return told

    arrays: list[tuple[str, mx.array]] = list(tree_flatten(state))  # type: ignore[arg-type]
    told = [(name, of_rank_0(saved.get(name, array))) for name, array in sorted(arrays)]
    return tree_unflatten(told), int(of_rank_0(mx.array(step)).item())  # type: ignore[arg-type]


def save(state: Any, step: int) -> None:
    CHECKPOINTS.mkdir(exist_ok=True)
    arrays: list[tuple[str, mx.array]] = list(tree_flatten(state))  # type: ignore[arg-type]
    mx.save_safetensors(COMING, dict(arrays))
    Path(COMING).rename(CHECKPOINTS / f"{step:06}.safetensors")  # it is there whole or not at all


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--save-every", type=int, default=50)
    options = parser.parse_args()
    world = mx.distributed.init()
    mx.random.seed(0)
    layers = nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 2)
    model, optimizer = nn.Sequential(*layers), optim.Adam(learning_rate=1e-2)
    optimizer.init(model.trainable_parameters())
    state = {"model": model.parameters(), "optimizer": optimizer.state}
    state, begin = load(state, world)
    model.update(state["model"])
    optimizer.state = state["optimizer"]
    print(f"rank {world.rank()} of {world.size()} begins behind step {begin}", flush=True)
    loss_and_grad = nn.value_and_grad(model, loss_fn)
    for step in range(begin + 1, options.steps + 1):
        loss, grads = loss_and_grad(model, *batch_of(step, world))
        optimizer.update(model, nn.average_gradients(grads))
        loss = mx.distributed.all_sum(loss, stream=mx.cpu) / world.size()
        mx.eval(model.parameters(), optimizer.state, loss)
        if world.rank() == 0 and (step % options.save_every == 0 or step == options.steps):
            save({"model": model.parameters(), "optimizer": optimizer.state}, step)
            print(f"step {step}: loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
