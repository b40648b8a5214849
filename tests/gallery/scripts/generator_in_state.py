"""Generators that are kept in run.state, one drawn from by that name and one by its own."""

import random

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np

import elasticd

dice = random.Random(3)
data = mx.random.normal((60, 4))
model = nn.Linear(4, 4)
optimizer = optim.SGD(0.05, momentum=0.9)


def loss_fn(model, x):
    return nn.losses.huber_loss(model(x), mx.flip(x, 1), reduction="mean")


run = elasticd.Run(model=model, optimizer=optimizer, loss=loss_fn, data=data)
run.state.rng = np.random.default_rng(7)
run.state.dice = dice
for step in run:
    optimizer.learning_rate = 0.05 * run.state.rng.uniform(0.5, 1.5)
    if dice.random() < 0.3:
        model.bias = model.bias * 0.9
