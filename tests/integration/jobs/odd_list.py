"""Data in a list, of which one sample is another on one node; it is none of the first grain."""

from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd

odd = "node-1" in Path.cwd().parts
data = [mx.array([1.0, float(number + (odd and number == 70))]) for number in range(100)]


def loss(model: nn.Linear, batch: mx.array) -> mx.array:
    return model(batch).square().mean()


model = nn.Linear(2, 1)
run = elasticd.Run(model=model, optimizer=optim.SGD(1e-6), loss=loss, data=data)
for step in run:
    print(step.number, step.loss, flush=True)
