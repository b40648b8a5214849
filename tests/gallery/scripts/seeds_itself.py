"""The script seeds every generator itself, as most do, and draws at the top."""

import random

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np

import elasticd

SEED = 42
random.seed(SEED)
np.random.seed(SEED)
mx.random.seed(SEED)

weights = np.random.uniform(-1, 1, (4, 2)).astype(np.float32)
x = np.random.normal(size=(90, 4)).astype(np.float32)
x = x[random.sample(range(90), 72)]
data = list(zip(x, x @ weights, strict=True))
model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.2), nn.Linear(8, 2))


def loss_fn(model, x, y):
    return nn.losses.mse_loss(model(x), y)


run = elasticd.Run(model=model, optimizer=optim.Adam(1e-2), loss=loss_fn, data=data)
for step in run:
    if step.number == 1:
        mx.random.seed(SEED)
    if step.number % 5 == 0:
        model.layers[0].weight = model.layers[0].weight + 1e-3 * mx.random.normal((8, 4))
