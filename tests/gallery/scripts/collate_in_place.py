"""The collate function scales and masks the samples where they lie, in the dataset."""

# /// gallery
# expect = "refused"
# words = ["collate=", "at position", "Copy it before"]
# ///

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np

import elasticd

rng = np.random.default_rng(5)
data = [rng.normal(size=8).astype(np.float32) for _ in range(40)]


def collate(samples):
    targets = np.stack(samples)
    for sample in samples:
        sample[np.random.random(8) < 0.2] = 0
    return mx.array(np.stack(samples)), mx.array(targets)


model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 8))


def loss_fn(model, x, targets):
    return nn.losses.mse_loss(model(x), targets)


run = elasticd.Run(
    model=model, optimizer=optim.Adam(1e-2), loss=loss_fn, data=data, collate=collate
)
for step in run:
    pass
