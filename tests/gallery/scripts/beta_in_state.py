"""The same figure in run.state, where it survives."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd

encoder = nn.Sequential(nn.Linear(8, 4), nn.Tanh(), nn.Linear(4, 8))
data = mx.random.normal((90, 8))


def loss_fn(model, x):
    hidden = model.layers[0](x)
    return nn.losses.mse_loss(model(x), x) + run.state.beta * hidden.square().mean()


run = elasticd.Run(model=encoder, optimizer=optim.Adam(1e-2), loss=loss_fn, data=data)
run.state.beta = 0.0
for step in run:
    run.state.beta = min(1.0, run.state.beta + 0.05)
