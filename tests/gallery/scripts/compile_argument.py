"""Run(compile=True): the library compiles the high-level form."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd

model = nn.Sequential(nn.Linear(5, 10), nn.Dropout(0.1), nn.ReLU(), nn.Linear(10, 5))
data = mx.random.normal((80, 5))


def loss_fn(model, x):
    return nn.losses.mse_loss(model(x), x.square())


run = elasticd.Run(model=model, optimizer=optim.Adam(1e-2), loss=loss_fn, data=data, compile=True)
for step in run:
    if step.number == 10:
        model.layers[0].freeze()
    print(step.number, step.loss)
