"""Validation every few steps; main keeps the best weights in a file, everybody the best figure."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
from mlx.utils import tree_flatten

import elasticd

EVERY = 4

x = mx.random.normal((120, 6))
y = mx.argmax(x[:, :3], axis=1)
train_set = list(zip(x[:96], y[:96], strict=True))
model = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Dropout(0.3), nn.Linear(24, 3))


def loss_fn(model, x, y):
    return nn.losses.cross_entropy(model(x), y, reduction="mean")


def evaluate():
    return (model(x[96:]).argmax(axis=1) == y[96:]).mean().item()


run = elasticd.Run(model=model, optimizer=optim.Adam(1e-2), loss=loss_fn, data=train_set)
best = {"accuracy": 0.0, "step": 0}
run.track("best", best)
for step in run:
    if step.number % EVERY:
        continue
    accuracy = run.evaluate(evaluate)
    if accuracy > best["accuracy"]:
        best.update(accuracy=accuracy, step=step.number)
        if run.is_main:
            weights = dict(tree_flatten(model.parameters()))
            mx.save_safetensors(str(run.output_dir / "best.safetensors"), weights)
    print(f"Epoch {step.number // EVERY}: {accuracy:.3f} (best {best})")
