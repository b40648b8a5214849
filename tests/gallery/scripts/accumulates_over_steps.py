"""Gradients are accumulated over four steps by hand, and three of four steps change nothing."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
from mlx.utils import tree_flatten, tree_unflatten

import elasticd

EVERY = 4

model = nn.Linear(6, 2)
x = mx.random.normal((96, 6))
y = x[:, 2:4]


def loss_fn(model, x, y):
    return nn.losses.mse_loss(model(x), y)


loss_and_grad = nn.value_and_grad(model, loss_fn)
optimizer = optim.Adam(1e-2)
run = elasticd.Run(model=model, optimizer=optimizer, data=list(zip(x, y, strict=True)))
total = {name: mx.zeros_like(p) for name, p in tree_flatten(model.trainable_parameters())}
run.track("total", total)
for step in run.steps():
    for batch in step.micro_batches():
        step.accumulate(*loss_and_grad(model, *batch))
    for name, gradient in tree_flatten(step.grads):
        total[name] = total[name] + gradient / EVERY
    if step.number % EVERY:
        step.skip()
    else:
        step.grads = tree_unflatten(list(total.items()))
        step.apply(optimizer)
        for name in total:
            total[name] = mx.zeros_like(total[name])
