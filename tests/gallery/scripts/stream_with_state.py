"""A stream that says where it is, and can be put there, as dataloaders with state do."""

import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np

import elasticd


class Loader:
    """Epochs of permutations; its state is an epoch and a place in it."""

    def __init__(self, data):
        self.data = data
        self.epoch = self.at = 0

    def __iter__(self):
        return self

    def __next__(self):
        if self.at == len(self.data):
            self.epoch, self.at = self.epoch + 1, 0
        order = np.random.default_rng(self.epoch).permutation(len(self.data))
        self.at += 1
        return self.data[order[self.at - 1]]

    def state(self):
        return {"epoch": self.epoch, "at": self.at}

    def load_state(self, state):
        self.epoch, self.at = int(state["epoch"]), int(state["at"])


data = np.random.default_rng(1).normal(size=(50, 3)).astype(np.float32)
model = nn.Linear(3, 3)


def loss_fn(model, x):
    return nn.losses.mse_loss(model(x), x**3)


run = elasticd.Run(model=model, optimizer=optim.Adam(0.01), loss=loss_fn, data=lambda: Loader(data))
for step in run:
    pass
