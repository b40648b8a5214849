"""Whoever thinks in epochs: step.epoch tells, and the rate falls after each."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd

data = mx.random.normal((80, 4))
model = nn.Linear(4, 4)


def loss_fn(model, x):
    return nn.losses.mse_loss(model(x), mx.sign(x))


optimizer = optim.SGD(0.1)
run = elasticd.Run(model=model, optimizer=optimizer, loss=loss_fn, data=data)
for step in run:
    optimizer.learning_rate = 0.1 * 0.7**step.epoch
    if run.is_main:
        print(f"epoch {step.epoch}, step {step.number}: {step.loss:.4f}")
