"""The adding problem for a GRU, with samples generated when they are asked for."""

import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np

import elasticd


class Adding:
    """Each sample is a function of its index."""

    def __init__(self, length, count):
        self.length, self.count = length, count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        rng = np.random.default_rng(index)
        values = rng.random(self.length)
        marks = np.zeros(self.length)
        marks[rng.choice(self.length, 2, replace=False)] = 1
        return {
            "x": np.stack([values, marks], -1).astype(np.float32),
            "y": np.float32((values * marks).sum()),
        }


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(2, 16)
        self.out = nn.Linear(16, 1)

    def __call__(self, x):
        return self.out(self.gru(x)[:, -1]).squeeze(-1)


def loss_fn(model, batch):
    return nn.losses.mse_loss(model(batch["x"]), batch["y"])


run = elasticd.Run(model=Model(), optimizer=optim.RMSprop(1e-3), loss=loss_fn, data=Adding(10, 500))
for step in run:
    print(f"rank {run.rank} of {run.world_size}: step {step.number}, mse {step.loss:.5f}")
