"""A learning-rate finder: the rate grows for some steps, then weights and optimizer begin anew."""

import math

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
from mlx.utils import tree_map

import elasticd

TRIALS = 10

x = mx.random.normal((96, 5))
data = list(zip(x, (x**2).sum(axis=1, keepdims=True), strict=True))
model = nn.Sequential(nn.Linear(5, 24), nn.ReLU(), nn.Linear(24, 1))
optimizer = optim.Adam(learning_rate=1e-5)
optimizer.init(model.trainable_parameters())


def loss_fn(model, x, y):
    return nn.losses.huber_loss(model(x), y, reduction="mean")


def copied(tree):
    return tree_map(lambda a: mx.array(a) if isinstance(a, mx.array) else a, tree)


run = elasticd.Run(model=model, optimizer=optimizer, loss=loss_fn, data=data)
run.state.weights = copied(model.parameters())
run.state.moments = copied(optimizer.state)
run.state.losses = []
for step in run:
    if step.number < TRIALS:
        run.state.losses = [*run.state.losses, (step.loss, optimizer.learning_rate.item())]
        optimizer.learning_rate = optimizer.learning_rate * 3
    elif step.number == TRIALS:
        found = [(loss, rate) for loss, rate in run.state.losses if math.isfinite(loss)]
        _, best = min(found)
        model.update(run.state.weights)
        optimizer.state = copied(run.state.moments)
        optimizer.learning_rate = best / 3
        run.state.weights = run.state.moments = None
        print(f"learning rate {best / 3:.2e}")
    else:
        print(f"Iter {step.number}: {step.loss:.4f}")
