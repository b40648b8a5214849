"""The body shakes the weights now and then, with random numbers of its own."""

import random

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
from mlx.utils import tree_map

import elasticd

model = nn.Sequential(nn.Linear(3, 8), nn.Mish(), nn.Linear(8, 3))
data = mx.random.uniform(shape=(64, 3))


def loss_fn(model, x):
    return nn.losses.mse_loss(model(x), mx.sort(x, axis=1))


run = elasticd.Run(model=model, optimizer=optim.Adam(5e-3), loss=loss_fn, data=data)
for step in run:
    if random.random() < 0.25:
        shaken = tree_map(lambda p: p + 0.01 * mx.random.normal(p.shape), model.parameters())
        model.update(shaken)
