"""What bench_overhead.py measures: one model, by ``elasticd.Run`` or by a plain loop that does the
same mathematics, in turns that the benchmark calls.

The same samples in the same micro-batches, gradients weighed and summed in float32 in the same
order, the same clipping and update, the loss read after each step. Only dropout draws other masks.
"""

from __future__ import annotations

import argparse
import json
import socket
import sys
import sysconfig
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import elasticd

sys.path.insert(0, str(Path(__file__).parent))

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np
from mlx.utils import tree_map

WARM_UP_STEPS = 2
CLOCKS = {"cpu": time.process_time, "python": time.thread_time, "seconds": time.perf_counter}
"""MLX computes in threads of its own, so ``python`` is what the loop itself costs."""
LARGE = {"WIDTH": 512, "HEADS": 8, "LAYERS": 8, "DROPOUT": 0.0, "CONTEXT": 16}
"""Instead of the example's: 25.4 million parameters. Few bytes, since what elasticd does beside
MLX goes by parameter."""


def example(model: str) -> Any:
    """The byte_lm example, as it is or larger."""
    import byte_lm  # type: ignore[import-not-found]

    for name, value in LARGE.items() if model == "25m" else ():
        setattr(byte_lm, name, value)
    return byte_lm


class Turns:
    """Blocks until a turn is called, and says what it took."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(path)
        self._lines = self._socket.makefile("r")
        self._left = WARM_UP_STEPS
        self._began = dict.fromkeys(CLOCKS, 0.0)

    def step_is_done(self, number: int, loss: float) -> bool:
        """False if there will be no more."""
        self._left -= 1
        if self._left:
            return True
        took = {name: clock() - self._began[name] for name, clock in CLOCKS.items()}
        line = {**took, "step": number, "loss": loss}
        self._socket.sendall(json.dumps(line).encode() + b"\n")
        self._left = int(self._lines.readline() or 0)
        self._began = {name: clock() for name, clock in CLOCKS.items()}
        return self._left > 0


def elastic(of: Any, windows: Any, turns: Turns) -> None:
    run = elasticd.Run(
        model=of.ByteLM(), optimizer=of.make_optimizer(), loss=of.loss_fn, data=windows,
        clip_norm=1.0,
    )  # fmt: skip
    for step in run:
        if not turns.step_is_done(step.number, step.loss):
            run.stop("all is measured")


def plain(of: Any, windows: Any, turns: Turns) -> None:
    from elasticd.settings.job import load
    from elasticd.train.steps.sampling import indices

    spec = load(Path(__file__).with_name("job.toml"))
    size, micro = spec.batch.global_, spec.batch.micro
    mx.random.seed(spec.train.seed)
    model, optimizer = of.ByteLM(), of.make_optimizer()
    mx.eval(model.parameters())
    loss_and_grad = nn.value_and_grad(model, of.loss_fn)
    number, goes_on = 0, True
    while goes_on:
        number += 1
        sums: list[tuple[int, Any]] = []
        for start in range((number - 1) * size, number * size, micro):
            samples = [windows[i] for i in indices(range(start, start + micro), len(windows), 0)]
            loss, gradients = loss_and_grad(model, mx.array(np.stack(samples)))
            weighed = tree_map(lambda g: g.astype(mx.float32) * micro, (loss, gradients))
            mx.eval(weighed)
            sums.append((1, weighed))
            while len(sums) > 1 and sums[-1][0] == sums[-2][0]:
                (count, right), (_, left) = sums.pop(), sums.pop()
                sums.append((2 * count, tree_map(mx.add, left, right)))
                mx.eval(sums[-1][1])
                del left, right
            del loss, gradients, weighed
        mean, gradients = tree_map(lambda each: each / size, sums.pop()[1])
        gradients, _ = optim.clip_grad_norm(gradients, 1.0)
        optimizer.update(model, gradients)
        mx.eval(model.parameters(), optimizer.state)
        del gradients
        goes_on = turns.step_is_done(number, mean.item())


def main(words: Iterable[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--way", choices=("plain", "elastic"), required=True)
    parser.add_argument("--model", choices=("byte_lm", "25m"), required=True)
    parser.add_argument("--socket", required=True)
    given = parser.parse_args(None if words is None else list(words))
    of = example(given.model)
    text, _ = of.split_sources(of.python_sources(Path(sysconfig.get_path("stdlib"))))
    way = elastic if given.way == "elastic" else plain
    way(of, of.Windows(text), Turns(given.socket))


if __name__ == "__main__":
    main()
