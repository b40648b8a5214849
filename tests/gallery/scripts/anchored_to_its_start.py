"""A penalty for moving away from the weights with which training began, copied above the loop."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
from mlx.utils import tree_flatten, tree_map

import elasticd

model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))
rows = mx.random.normal((96, 9), key=mx.random.key(5))


def loss_fn(model, row):
    labels = mx.floor(mx.abs(row[:, 8]) * 2).astype(mx.int32) % 4
    loss = nn.losses.cross_entropy(model(row[:, :8]), labels, reduction="mean")
    start = dict(tree_flatten(reference))
    moved = [((value - start[name]) ** 2).sum() for name, value in tree_flatten(model.parameters())]
    return loss + 0.05 * sum(moved)


run = elasticd.Run(model=model, optimizer=optim.Adam(1e-2), loss=loss_fn, data=rows)
reference = tree_map(mx.array, model.parameters())
for step in run:
    if run.is_main:
        print(step.number, step.loss)
