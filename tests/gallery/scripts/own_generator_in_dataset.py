"""A dataset draws noise for each sample that is fetched from a numpy generator of its own."""

import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np

import elasticd


class Noisy:
    def __init__(self, count, seed=0):
        self.rng = np.random.default_rng(seed)
        self.clean = self.rng.normal(size=(count, 5)).astype(np.float32)

    def __len__(self):
        return len(self.clean)

    def __getitem__(self, index):
        noise = self.rng.normal(scale=0.3, size=5).astype(np.float32)
        return self.clean[index] + noise, self.clean[index]


model = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 5))


def loss_fn(model, noisy, clean):
    return nn.losses.mse_loss(model(noisy), clean)


run = elasticd.Run(model=model, optimizer=optim.Adam(1e-3), loss=loss_fn, data=Noisy(96))
for step in run:
    print(step.number, step.loss)
