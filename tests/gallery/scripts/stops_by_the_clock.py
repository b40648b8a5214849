"""The script ends itself after so many seconds of its own clock, which differs by rank."""

# /// gallery
# expect = "named"
# words = ["time is up"]
# ///

import time

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd

BUDGET_SECONDS = 300.0

began = time.monotonic()
model = nn.Linear(4, 4)
data = mx.random.normal((64, 4))


def loss_fn(model, x):
    return (model(x) ** 2).mean()


run = elasticd.Run(model=model, optimizer=optim.SGD(0.1), loss=loss_fn, data=data)
for step in run:
    if time.monotonic() - began > BUDGET_SECONDS or (step.number == 17 and run.rank == 0):
        run.stop("time is up")
