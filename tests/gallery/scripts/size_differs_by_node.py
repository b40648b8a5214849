"""The model's size differs by process, and that is told before step 1."""

# /// gallery
# expect = "named"
# words = ["must build the same model"]
# ///

import os

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd

hidden = 4 + os.getpid() % 5
model = nn.Sequential(nn.Linear(4, hidden), nn.ReLU(), nn.Linear(hidden, 4))
data = mx.random.normal((64, 4))


def loss_fn(model, x):
    return nn.losses.mse_loss(model(x), x)


run = elasticd.Run(model=model, optimizer=optim.SGD(0.1), loss=loss_fn, data=data)
for step in run:
    pass
