"""Data is a function that returns the same iterator each time, half read."""

# /// gallery
# expect = "refused"
# words = ["data"]
# ///

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd

rows = iter(list(mx.random.normal((1000, 3))))
model = nn.Linear(3, 1)


def loss_fn(model, x):
    return model(x).square().mean()


run = elasticd.Run(model=model, optimizer=optim.SGD(0.1), loss=loss_fn, data=lambda: rows)
for step in run:
    print(step.number, step.loss)
