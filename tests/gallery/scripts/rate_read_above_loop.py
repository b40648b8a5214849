"""A learning rate that is read above the loop, as the base of a schedule by hand."""

import math

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd

model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = optim.AdamW(learning_rate=0.02)
rows = mx.random.normal((96, 9), key=mx.random.key(3))


def loss_fn(model, row):
    return ((model(row[:, :8])[:, 0] - row[:, 8]) ** 2).mean()


run = elasticd.Run(model=model, optimizer=optimizer, loss=loss_fn, data=rows)
base = optimizer.learning_rate.item()
for step in run:
    optimizer.learning_rate = base * (0.5 + 0.5 * math.cos(step.number / 24))
    if run.is_main:
        print(step.number, step.loss)
