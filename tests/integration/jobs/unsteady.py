"""A loss that has other bits each time that a grain is computed."""

import time

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd


def loss(model: nn.Linear, batch: mx.array) -> mx.array:
    return model(batch).square().mean() * (1 + time.perf_counter_ns() % 1000 / 1e6)


model = nn.Linear(2, 1)
data = [mx.array([1.0, float(i)]) for i in range(32)]
run = elasticd.Run(model=model, optimizer=optim.SGD(1e-4), loss=loss, data=data)
for step in run:
    print(step.number, step.loss, flush=True)
