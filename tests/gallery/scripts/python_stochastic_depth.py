"""Layers are dropped by Python's own random in the forward pass, noise is drawn by numpy."""

import random

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np

import elasticd


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(6, 12)
        self.blocks = [nn.Linear(12, 12) for _ in range(4)]
        self.head = nn.Linear(12, 3)

    def __call__(self, x):
        x = self.stem(x)
        for block in self.blocks:
            if self.training and random.random() < 0.3:
                continue
            x = x + nn.relu(block(x))
        if self.training:
            x = x + mx.array(np.random.normal(0, 0.01, x.shape).astype(np.float32))
        return self.head(x)


def loss_fn(model, batch):
    x, y = batch
    return nn.losses.cross_entropy(model(x), y).mean()


rng = np.random.default_rng(1)
data = [(rng.normal(size=6).astype(np.float32), i % 3) for i in range(70)]
run = elasticd.Run(model=Net(), optimizer=optim.Adamax(3e-3), loss=loss_fn, data=data)
losses = [step.loss for step in run]
print(f"first {losses[0] if losses else None}, last {losses[-1] if losses else None}")
