"""A private array that is made of the weights at the first use, and kept while they change."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np

import elasticd


class Anchored(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.linear = nn.Linear(size, size)

    def __call__(self, x):
        if "_anchor" not in self:
            self._anchor = mx.stop_gradient(self.linear.weight) * 0.5
        return self.linear(x) + x @ self._anchor.T


model = nn.Sequential(Anchored(6), nn.Tanh(), Anchored(6))
data = np.random.default_rng(9).normal(size=(80, 6)).astype(np.float32)


def loss_fn(model, x):
    return mx.abs(model(x) - x).mean()


run = elasticd.Run(model=model, optimizer=optim.Adam(1e-2), loss=loss_fn, data=data)
for step in run:
    if run.is_main and step.number % 8 == 0:
        print(step.number, step.loss)
