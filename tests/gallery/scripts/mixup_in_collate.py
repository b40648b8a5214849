"""Mixup: the collate function mixes a batch's samples, with numbers drawn by numpy."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np

import elasticd

CLASSES = 4

rng = np.random.default_rng(2)
x = rng.normal(size=(100, 7)).astype(np.float32)
y = rng.integers(0, CLASSES, 100)
data = [{"x": a, "y": b, "id": i} for i, (a, b) in enumerate(zip(x, y, strict=True))]


def mixup(samples):
    x = np.stack([sample["x"] for sample in samples])
    y = np.eye(CLASSES, dtype=np.float32)[[sample["y"] for sample in samples]]
    share = np.float32(np.random.beta(0.4, 0.4))
    order = np.random.permutation(len(x))
    mixed = share * x + (1 - share) * x[order], share * y + (1 - share) * y[order]
    return tuple(mx.array(part) for part in mixed)


model = nn.Sequential(nn.Linear(7, 14), nn.PReLU(), nn.Linear(14, CLASSES))


def loss_fn(model, x, targets):
    return nn.losses.cross_entropy(model(x), targets, reduction="mean")


run = elasticd.Run(model=model, optimizer=optim.Adam(5e-3), loss=loss_fn, data=data, collate=mixup)
for step in run:
    pass
