"""run.on_main called on main only, as one calls a logger: the other ranks never make the call."""

# /// gallery
# expect = "named"
# words = ["run.on_main()", "on every rank"]
# ///

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd

data = mx.random.normal((64, 4))
model = nn.Linear(4, 4)


def loss_fn(model, x):
    return (model(x) - x).square().mean()


run = elasticd.Run(model=model, optimizer=optim.SGD(0.1), loss=loss_fn, data=data)
best = float("inf")
for step in run:
    if run.is_main and step.number % 4 == 0:
        best = run.on_main(lambda: min(best, step.loss))
