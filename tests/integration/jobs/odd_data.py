"""Data that is another on one node, in most samples; the first ones are alike."""

from collections.abc import Iterator
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd

odd = "node-1" in Path.cwd().parts


def data() -> Iterator[mx.array]:
    for number in range(1000):
        yield mx.array([1.0, float(number + (odd and number > 20))])


def loss(model: nn.Linear, batch: mx.array) -> mx.array:
    return model(batch).square().mean()


model = nn.Linear(2, 1)
run = elasticd.Run(model=model, optimizer=optim.SGD(1e-6), loss=loss, data=data)
for step in run:
    print(step.number, step.loss, flush=True)
