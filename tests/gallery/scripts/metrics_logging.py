"""Accuracy and norms beside the loss, logged and printed as JSON lines."""

import json

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np
from mlx.utils import tree_flatten

import elasticd

rng = np.random.default_rng(12)
x = rng.normal(size=(140, 5)).astype(np.float32)
data = [(row, np.int32(row.argmax())) for row in x]
model = nn.Sequential(nn.Linear(5, 20), nn.ReLU(), nn.Linear(20, 5))


def loss_fn(model, x, y):
    logits = model(x)
    loss = nn.losses.cross_entropy(logits, y).mean()
    accuracy = (logits.argmax(-1) == y).mean()
    return elasticd.Weighted(loss, mx.array(len(y)), metrics={"accuracy": accuracy})


run = elasticd.Run(model=model, optimizer=optim.Adam(1e-2), loss=loss_fn, data=data)
for step in run:
    norm = sum(p.square().sum() for _, p in tree_flatten(model.parameters())).sqrt().item()
    run.log(accuracy=step.metrics["accuracy"], norm=norm)
    if run.is_main:
        line = {"step": step.number, "loss": step.loss, **step.metrics, "norm": norm}
        print(json.dumps(line), flush=True)
