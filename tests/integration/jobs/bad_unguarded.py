"""Starts processes as macOS does, behind its loop, and lacks ``if __name__ == "__main__":``."""

import multiprocessing

import mlx.nn as nn
import mlx.optimizers as optim
from common import CLASSES, INPUTS, Samples  # type: ignore[import-not-found]

import elasticd


def square(number: int) -> int:
    return number * number


run = elasticd.Run(
    model=nn.Linear(INPUTS, CLASSES),
    optimizer=optim.SGD(learning_rate=0.1),
    loss=lambda model, batch: nn.losses.cross_entropy(model(batch["x"]), batch["y"]).mean(),
    data=Samples(0.0),
)
for _ in run:
    pass
with multiprocessing.get_context("spawn").Pool(2) as pool:
    pool.map(square, range(4))
