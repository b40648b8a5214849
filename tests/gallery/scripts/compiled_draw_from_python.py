"""A compiled loss that draws a margin from Python and a mask from NumPy, which its trace fixes."""

import random

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np

import elasticd

model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
rows = mx.random.normal((96, 9), key=mx.random.key(9))


def loss_fn(model, row):
    mask = mx.array(np.random.random(8) < 0.7)
    return (mx.abs(model(row[:, :8] * mask)[:, 0] - row[:, 8]) * random.gauss(1, 0.2)).mean()


run = elasticd.Run(model=model, optimizer=optim.Adam(1e-2), loss=loss_fn, data=rows, compile=True)
for step in run:
    if run.is_main:
        print(step.number, step.loss)
