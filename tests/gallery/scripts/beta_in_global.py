"""The body sets a global that the loss reads: a joiner's first step reads an old one."""

# /// gallery
# expect = "left out"
# spared = ["everything"]
# words = ["state outside of run", "grain"]
# ///

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd

beta = 0.0
encoder = nn.Sequential(nn.Linear(8, 4), nn.Tanh(), nn.Linear(4, 8))
data = mx.random.normal((90, 8))


def loss_fn(model, x):
    hidden = model.layers[0](x)
    return nn.losses.mse_loss(model(x), x) + beta * hidden.square().mean()


run = elasticd.Run(model=encoder, optimizer=optim.Adam(1e-2), loss=loss_fn, data=data)
for step in run:
    beta = min(1.0, step.number / 20)
    print(step.number, beta, step.loss)
