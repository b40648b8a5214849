"""Some samples are broken, their loss isn't a number, and the job skips such steps."""

# /// gallery
# settings = { "recovery.on_nan" = "skip" }
# ///

import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np

import elasticd

rows = np.random.default_rng(0).normal(size=(200, 4)).astype(np.float32)
rows[[17, 140]] = np.nan
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))


def loss_fn(model, x):
    return nn.losses.mse_loss(model(x), x)


optimizer = optim.Adam(optim.linear_schedule(1e-2, 1e-3, 24))
run = elasticd.Run(model=model, optimizer=optimizer, loss=loss_fn, data=list(rows))
for step in run:
    print(step.number, step.loss)
