"""A function for run.on_main that raises in the middle of training: only main runs it."""

# /// gallery
# expect = "fails"
# words = ["FileNotFoundError", "rates.json"]
# ///

from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd

data = mx.random.normal((64, 4))
model = nn.Linear(4, 4)
optimizer = optim.SGD(0.1)


def loss_fn(model, x):
    return (model(x) - x).square().mean()


run = elasticd.Run(model=model, optimizer=optimizer, loss=loss_fn, data=data)
for step in run:
    if step.number == 7:
        optimizer.learning_rate = float(run.on_main(Path("rates.json").read_text))
