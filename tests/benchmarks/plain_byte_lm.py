"""The byte_lm example as a plain MLX script: the yardstick for throughput without faults.

Same model, data, micro-batches, float32 sums, clipping and update as the example, but the ranks
share every global batch in contiguous, equal parts and meet in one ``nn.average_gradients`` a step.
Nothing here survives a fault. Rank 0 prints one JSON object a step: ``step``, ``seconds`` (the
whole step), of them ``compute_seconds``, ``reduce_seconds`` and ``update_seconds``, and ``loss``,
the mean of its own part in nats.

    mlx.launch -n 2 --backend ring -- .venv/bin/python tests/benchmarks/plain_byte_lm.py
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np
from mlx.utils import tree_map

EXAMPLE = Path(__file__).parents[2] / "elasticd" / "examples" / "byte_lm" / "train.py"


@dataclass(frozen=True)
class Share:
    """What one rank computes of each step."""

    rank: int
    world_size: int
    global_batch: int
    micro_batch: int
    seed: int

    def micro_batches(self, windows: Any, step: int) -> Iterator[mx.array]:
        """This rank's part of global batch ``step`` (from 1), uint8[<= micro, CONTEXT + 1]."""
        part = self.global_batch // self.world_size
        first = (step - 1) * self.global_batch + self.rank * part
        for start in range(first, first + part, self.micro_batch):
            stop = min(start + self.micro_batch, first + part)
            indices = [self._sample(position, len(windows)) for position in range(start, stop)]
            yield mx.array(np.stack([windows[index] for index in indices]))

    def _sample(self, position: int, length: int) -> int:
        epoch, index = divmod(position, length)
        if epoch not in _PERMUTATIONS:
            _PERMUTATIONS[epoch] = np.random.default_rng((self.seed, epoch)).permutation(length)
        return int(_PERMUTATIONS[epoch][index])


_PERMUTATIONS: dict[int, Any] = {}


def load_example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("byte_lm_example", EXAMPLE)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def part_gradient(
    loss_and_grad: Callable[..., Any], model: nn.Module, batches: Iterator[mx.array]
) -> tuple[float, Any]:
    """Mean loss and gradient, float32, over all samples, evaluated batch by batch."""
    total, loss_sum, samples = None, 0.0, 0
    for batch in batches:
        weight = len(batch)
        loss, grads = loss_and_grad(model, batch)
        weighted = tree_map(lambda g, w=weight: g.astype(mx.float32) * w, grads)
        total = weighted if total is None else tree_map(mx.add, total, weighted)
        mx.eval(loss, total)
        loss_sum += loss.item() * weight
        samples += weight
    return loss_sum / samples, tree_map(lambda g: g / samples, total)


def train(example: ModuleType, share: Share, group: mx.distributed.Group, steps: int) -> None:
    text, _ = example.split_sources(example.python_sources(Path(sysconfig.get_path("stdlib"))))
    windows = example.Windows(text)
    mx.random.seed(share.seed)
    model = example.ByteLM()
    optimizer = example.make_optimizer()
    mx.eval(model.parameters())
    mx.random.seed(share.seed + 1 + share.rank)  # dropout differs from rank to rank
    loss_and_grad = nn.value_and_grad(model, example.loss_fn)

    for step in range(1, steps + 1):
        begun = time.perf_counter()
        batches = share.micro_batches(windows, step)
        loss, grads = part_gradient(loss_and_grad, model, batches)
        mx.eval(grads)
        computed = time.perf_counter()
        grads = nn.average_gradients(grads, group)
        mx.eval(grads)
        reduced = time.perf_counter()
        grads, _ = optim.clip_grad_norm(grads, 1.0)
        optimizer.update(model, grads)
        mx.eval(model.parameters(), optimizer.state)
        done = time.perf_counter()
        if share.rank == 0:
            line = {
                "step": step,
                "seconds": done - begun,
                "compute_seconds": computed - begun,
                "reduce_seconds": reduced - computed,
                "update_seconds": done - reduced,
                "loss": loss,
            }
            print(json.dumps(line), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="byte_lm in plain MLX, for comparison")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--global", dest="global_batch", type=int, default=64)
    parser.add_argument("--micro", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--model", type=json.loads, default={}, help="constants of the example")
    options = parser.parse_args()
    group = mx.distributed.init()
    if options.global_batch % group.size():
        sys.exit(f"plain_byte_lm: --global must be a multiple of the {group.size()} ranks")
    share = Share(
        rank=group.rank(),
        world_size=group.size(),
        global_batch=options.global_batch,
        micro_batch=options.micro,
        seed=options.seed,
    )
    example = load_example()
    for name, value in options.model.items():
        setattr(example, name, value)
    train(example, share, group, options.steps)


if __name__ == "__main__":
    main()
