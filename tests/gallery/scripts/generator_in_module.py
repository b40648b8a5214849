"""Helpers lie in a module beside the script, with a generator among its globals."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import noise

import elasticd

model = nn.Sequential(nn.Linear(6, 10), nn.Tanh(), nn.Linear(10, 6))
data = mx.random.normal((80, 6))


def loss_fn(model, x):
    return nn.losses.mse_loss(model(x * mx.array(noise.corrupt(x.shape))), x)


optimizer = optim.Adam(1e-2)
for step in elasticd.Run(model=model, optimizer=optimizer, loss=loss_fn, data=data):
    optimizer.learning_rate = 1e-2 * float(noise.rng.uniform(0.5, 1))
