"""Batches that neither the grains nor the dataset divide, more nodes than grains at times."""

# /// gallery
# settings = { "batch.global" = 7, "batch.micro" = 5, "train.steps" = 30 }
# ///

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd

data = [(mx.array([float(i), 1.0]), i % 2 == 0, i) for i in range(11)]
model = nn.Sequential(nn.Linear(2, 6), nn.Softsign(), nn.Linear(6, 1))


def loss_fn(model, x, even, number):
    logits = model(x / 10).squeeze(-1)
    return nn.losses.binary_cross_entropy(logits, even.astype(mx.float32)) + 0 * number.sum()


run = elasticd.Run(model=model, optimizer=optim.Adam(2e-2), loss=loss_fn, data=data)
for step in run:
    pass
