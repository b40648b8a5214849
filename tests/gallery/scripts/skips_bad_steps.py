"""The low-level form leaves out updates whose gradient is too large, by step.skip()."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
from mlx.utils import tree_flatten

import elasticd

model = nn.Linear(4, 1)
x = mx.random.normal((64, 4))
y = mx.where(mx.arange(64)[:, None] % 16 == 0, 50.0, x[:, :1])


def loss_fn(model, x, y):
    return nn.losses.mse_loss(model(x), y)


loss_and_grad = nn.value_and_grad(model, loss_fn)
optimizer = optim.SGD(0.05, momentum=0.9)
run = elasticd.Run(model=model, optimizer=optimizer, data=list(zip(x, y, strict=True)))
for step in run.steps():
    for batch in step.micro_batches():
        step.accumulate(*loss_and_grad(model, *batch))
    norm = sum(g.square().sum() for _, g in tree_flatten(step.grads)).sqrt()
    if norm.item() > 10:
        print(f"step {step.number}: gradient of norm {norm.item():.1f}, skipped")
        step.skip()
    else:
        step.apply(optimizer)
