"""Annealed noise is added to the reduced gradient, drawn from mx.random and from numpy."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np
from mlx.utils import tree_map

import elasticd

model = nn.Sequential(nn.Linear(4, 10), nn.ReLU(), nn.Linear(10, 1))
x = mx.random.normal((64, 4))
y = mx.prod(x, axis=1, keepdims=True)


def loss_fn(model, x, y):
    return nn.losses.log_cosh_loss(model(x), y, reduction="mean")


step_fn = nn.value_and_grad(model, loss_fn)
optimizer = optim.SGD(learning_rate=0.05)
run = elasticd.Run(model=model, optimizer=optimizer, data=list(zip(x, y, strict=True)))
for step in run.steps():
    for x, y in step.micro_batches():
        loss, grads = step_fn(model, x, y)
        step.accumulate(loss, grads)
    std = 0.1 / (1 + step.number) ** 0.55
    step.grads = tree_map(lambda g: g + std * mx.random.normal(g.shape), step.grads)
    if np.random.random() < 0.2:  # now and then a step goes half as far
        step.grads = tree_map(lambda g: g * 0.5, step.grads)
    step.apply(optimizer)
