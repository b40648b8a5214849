"""The low-level form sets the rate before each update, and scales some layers' gradients."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
from mlx.utils import tree_map_with_path

import elasticd

model = nn.Sequential(nn.Linear(6, 12), nn.Sigmoid(), nn.Linear(12, 2))
x = mx.random.normal((80, 6))
y = (x[:, :2] > 0).astype(mx.int32)


def loss_fn(model, x, y):
    return nn.losses.binary_cross_entropy(model(x), y)


def scaled(path, gradient):
    return gradient * (0.1 if path.startswith("layers.0") else 1.0)


optimizer = optim.Adam(learning_rate=0.0)
value_and_grad = nn.value_and_grad(model, loss_fn)
run = elasticd.Run(model=model, optimizer=optimizer, data=list(zip(x, y, strict=True)))
for step in run.steps():
    optimizer.learning_rate = min(step.number / 8, 1.0) * 1e-2
    for batch in step.micro_batches():
        step.accumulate(*value_and_grad(model, *batch))
    step.grads = tree_map_with_path(scaled, step.grads)
    step.apply(optimizer)
