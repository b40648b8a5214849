"""The body scales and clips weights in place, through another name for the same array."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd

model = nn.Sequential(nn.Linear(5, 9), nn.ReLU(), nn.Linear(9, 5))
data = mx.random.normal((80, 5))


def loss_fn(model, x):
    return nn.losses.mse_loss(model(x), x + 1)


run = elasticd.Run(model=model, optimizer=optim.SGD(0.2), loss=loss_fn, data=data)
for step in run:
    if step.number % 5 == 0:
        w = model.layers[0].weight
        w *= 0.5
        bias = model.layers[2].bias
        bias[:2] = 0.0
    for layer in (model.layers[0], model.layers[2]):
        layer.weight = mx.clip(layer.weight, -0.6, 0.6)
