"""A dataset draws each sample when it is first asked for it, and keeps it."""

# /// gallery
# expect = "refused"
# words = ["keeps what it made", "default_rng(index)"]
# ///

import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np

import elasticd


class Synthetic:
    def __init__(self, count):
        self.count, self.kept = count, {}

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if index not in self.kept:
            self.kept[index] = np.random.randn(8).astype(np.float32)
        return self.kept[index]


model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))


def loss_fn(model, x):
    return ((model(x)[:, 0] - x.sum(axis=1)) ** 2).mean()


run = elasticd.Run(model=model, optimizer=optim.Adam(1e-2), loss=loss_fn, data=Synthetic(96))
for step in run:
    print(step.number, step.loss)
