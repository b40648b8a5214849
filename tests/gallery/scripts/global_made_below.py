"""The loss reads a global that is assigned below Run, as in a notebook that was exported."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd

model = nn.Linear(5, 3)
x = mx.random.normal((80, 5))
data = list(zip(x, mx.argmax(x[:, :3], axis=1), strict=True))


def loss_fn(model, x, y):
    return nn.losses.cross_entropy(model(x), y, weights=class_weights[y], reduction="mean")


run = elasticd.Run(model=model, optimizer=optim.Adam(1e-2), loss=loss_fn, data=data)
class_weights = mx.array([0.5, 1.0, 2.0])
for step in run:
    print(step.number, step.loss)
