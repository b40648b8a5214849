"""Gradients are added up by hand over several steps, and the optimizer is called every fourth."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
from mlx.utils import tree_map

import elasticd

ACCUMULATE = 4

x = mx.random.normal((96, 6))
data = list(zip(x, mx.tanh(x @ mx.random.normal((6, 2))), strict=True))
model = nn.Sequential(nn.Linear(6, 20), nn.GELU(), nn.Linear(20, 2))
optimizer = optim.AdamW(learning_rate=5e-3)


def loss_fn(model, x, y):
    return nn.losses.mse_loss(model(x), y)


loss_and_grad = nn.value_and_grad(model, loss_fn)
run = elasticd.Run(model=model, optimizer=optimizer, data=data)
run.state.accumulated = tree_map(mx.zeros_like, model.trainable_parameters())
for step in run.steps():
    for x, y in step.micro_batches():
        step.accumulate(*loss_and_grad(model, x, y))
    total = tree_map(mx.add, run.state.accumulated, step.grads)
    if step.number % ACCUMULATE:
        run.state.accumulated = total
        step.skip()
        continue
    step.grads = tree_map(lambda gradient: gradient / ACCUMULATE, total)
    step.apply(optimizer)
    run.state.accumulated = tree_map(mx.zeros_like, total)
    print(f"Update {step.number // ACCUMULATE}: loss {step.loss:.4f}")
