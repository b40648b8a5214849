"""Early stopping: the loop is left once the loss is low enough."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd

x = mx.random.normal((64, 3))
y = x.sum(axis=1, keepdims=True)
model = nn.Linear(3, 1)


def loss_fn(model, x, y):
    return nn.losses.mse_loss(model(x), y)


data = list(zip(x, y, strict=True))
run = elasticd.Run(model=model, optimizer=optim.Adam(0.1), loss=loss_fn, data=data)
for step in run:
    print(step.number, step.loss)
    if step.loss < 1e-3 or step.number == 18:
        print("converged")
        break
