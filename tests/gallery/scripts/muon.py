"""Muon, whose update goes through a Newton-Schulz iteration."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd

model = nn.Sequential(nn.Linear(8, 8, bias=False), nn.ReLU(), nn.Linear(8, 8, bias=False))
data = mx.random.normal((80, 8))


def loss_fn(model, x):
    return nn.losses.mse_loss(model(x), mx.sort(x, axis=-1))


optimizer = optim.Muon(learning_rate=0.02, momentum=0.95, weight_decay=0.01)
run = elasticd.Run(model=model, optimizer=optimizer, loss=loss_fn, data=data)
for step in run:
    if run.is_main:
        print(f"step {step.number} loss {step.loss:.4f}")
