"""Adafactor with its own relative step size, on matrices and vectors."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd

model = nn.Sequential(nn.Linear(6, 20), nn.ReLU6(), nn.LayerNorm(20), nn.Linear(20, 6))
data = mx.random.normal((90, 6))


def loss_fn(model, x):
    return nn.losses.mse_loss(model(x), x.square())


optimizer = optim.Adafactor(warmup_init=True)
run = elasticd.Run(model=model, optimizer=optimizer, loss=loss_fn, data=data)
for step in run:
    print(step.number, step.loss)
