"""Data is shuffled and split at the top by random, numpy and MLX, with nobody seeding them."""

import random

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np

import elasticd

x = np.random.randn(150, 6).astype(np.float32)
y = (x[:, 0] * x[:, 1] > 0).astype(np.int32)
order = list(range(len(x)))
random.shuffle(order)
order = np.array(order)[np.random.permutation(len(x))]
order = order[np.array(mx.random.permutation(len(x)))]
x, y = x[order], y[order]
split = int(0.8 * len(x))
train = [(a, b) for a, b in zip(x[:split], y[:split], strict=True)]

model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2))


def loss_fn(model, x, y):
    return nn.losses.cross_entropy(model(x), y, reduction="mean")


run = elasticd.Run(model=model, optimizer=optim.AdaDelta(0.5), loss=loss_fn, data=train)
for step in run:
    if run.is_main and step.number % 8 == 0:
        predicted = model(mx.array(x[split:])).argmax(1)
        print(f"test accuracy {(predicted == mx.array(y[split:])).mean().item():.2f}")
