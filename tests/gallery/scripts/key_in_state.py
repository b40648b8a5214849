"""A random key that is split in every step, as JAX has it, and kept in run.state."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
from mlx.utils import tree_map

import elasticd

data = mx.random.normal((64, 5))
model = nn.Sequential(nn.Linear(5, 10), nn.GELU(), nn.Linear(10, 5))
optimizer = optim.Lion(1e-3)


def loss_fn(model, x):
    return (model(x) - x).square().mean()


loss_and_grad = nn.value_and_grad(model, loss_fn)
run = elasticd.Run(model=model, optimizer=optimizer, data=data)
run.state.key = mx.random.key(7)
for step in run.steps():
    for batch in step.micro_batches():
        step.accumulate(*loss_and_grad(model, batch))
    run.state.key, part = mx.random.split(run.state.key)

    def noisy(gradient, part=part):
        return gradient + 0.05 * mx.random.normal(gradient.shape, key=part)

    step.grads = tree_map(noisy, step.grads)
    step.apply(optimizer)
