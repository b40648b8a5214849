"""Whoever is main at the time appends to a file of the run's folder, opened each time."""

import json
import time

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd

model = nn.Linear(5, 5, bias=False)
data = mx.random.normal((80, 5))


def loss_fn(model, x):
    return nn.losses.mse_loss(model(x), mx.roll(x, 1, axis=1))


run = elasticd.Run(model=model, optimizer=optim.Lion(1e-3), loss=loss_fn, data=data)
for step in run:
    if not run.is_main:
        continue
    with (run.output_dir / "history.jsonl").open("a") as file:
        file.write(json.dumps({"step": step.number, "loss": step.loss, "at": time.time()}) + "\n")
