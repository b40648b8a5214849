"""Lookahead: every few steps the weights go back half of their way to slow ones."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
from mlx.utils import tree_map

import elasticd

x = mx.random.normal((96, 6))
data = list(zip(x, mx.sin(x).sum(axis=1, keepdims=True), strict=True))
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))


def loss_fn(model, x, y):
    return nn.losses.huber_loss(model(x), y, reduction="mean")


run = elasticd.Run(model=model, optimizer=optim.AdamW(0.02), loss=loss_fn, data=data)
run.state.slow = tree_map(lambda weight: weight + 0, model.trainable_parameters())
for step in run:
    if step.number % 5 == 0:
        fast = model.trainable_parameters()
        run.state.slow = tree_map(lambda a, b: a + 0.5 * (b - a), run.state.slow, fast)
        model.update(run.state.slow)
        print(f"step {step.number}: {step.loss:.4f}, back half of the way")
