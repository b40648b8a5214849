"""Main saves weights, optimizer and a model card now and then, and at the end loads them again."""

import json

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
from mlx.utils import tree_flatten

import elasticd

model = nn.Sequential(nn.Linear(6, 10), nn.ReLU(), nn.Linear(10, 6))
data = mx.random.normal((72, 6))


def loss_fn(model, x):
    return nn.losses.mse_loss(model(x), x)


optimizer = optim.Adam(3e-3)
run = elasticd.Run(model=model, optimizer=optimizer, loss=loss_fn, data=data)


def save(step):
    weights = dict(tree_flatten(model.trainable_parameters()))
    mx.save_safetensors(str(run.output_dir / f"{step:07d}_adapters.safetensors"), weights)
    state = tree_flatten(optimizer.state, destination={})
    mx.save_safetensors(str(run.output_dir / "optimizer.safetensors"), state)
    (run.output_dir / "card.json").write_text(json.dumps({"step": step, "loss": step}))


for step in run:
    if run.is_main and step.number % 8 == 0:
        save(step.number)
if run.is_main:
    save(24)
    before = run.digest()
    model.load_weights(str(run.output_dir / "0000024_adapters.safetensors"))
    assert run.digest() == before
