"""A schedule that is a function with some of its arguments bound, which the body changes."""

import functools

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np

import elasticd

rows = [np.random.randn(8).astype(np.float32) for _ in range(40)]
held = {"rate": 0.1, "best": float("inf")}


def schedule(held, step):
    return mx.array(held["rate"])


def loss_fn(model, x):
    return mx.square(model(x)[:, 0] - x.sum(1)).mean()


optimizer = optim.Adam(functools.partial(schedule, held))
run = elasticd.Run(model=nn.Linear(8, 1), optimizer=optimizer, loss=loss_fn, data=rows)
for step in run:
    if step.loss < 0.95 * held["best"]:
        held["best"] = step.loss
    else:
        held["rate"] /= 2
