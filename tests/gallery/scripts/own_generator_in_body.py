"""The body draws from a numpy generator of the script's own, seeded at the top."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np

import elasticd

rng = np.random.default_rng(99)
model = nn.Linear(4, 4)
data = mx.random.normal((64, 4))


def loss_fn(model, x):
    return nn.losses.mse_loss(model(x), x + 1)


run = elasticd.Run(model=model, optimizer=optim.SGD(0.05), loss=loss_fn, data=data)
for step in run:
    if rng.random() < 0.4:
        noise = rng.normal(scale=0.01, size=model.weight.shape)
        model.weight = model.weight + mx.array(noise.astype(np.float32))
