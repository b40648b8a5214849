"""A random key that is split now and then in the loop, as JAX has it: a newcomer has another."""

# /// gallery
# expect = "named"
# words = ["outside of run.state"]
# spared = ["everything"]
# settings = { "train.steps" = 36 }
# ///

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
from mlx.utils import tree_map

import elasticd

data = mx.random.normal((64, 4))
model = nn.Linear(4, 4)
optimizer = optim.SGD(0.1)


def loss_fn(model, x):
    return (model(x) - x).square().mean()


loss_and_grad = nn.value_and_grad(model, loss_fn)
run = elasticd.Run(model=model, optimizer=optimizer, data=data)
key = mx.random.key(7)


def noise(gradient, key):
    return gradient + 0.1 * mx.random.normal(gradient.shape, key=key)


for step in run.steps():
    for batch in step.micro_batches():
        step.accumulate(*loss_and_grad(model, batch))
    if step.number % 7 == 0:  # not in the step in which a newcomer shows what it computes
        key, part = mx.random.split(key)
        step.grads = tree_map(lambda gradient, part=part: noise(gradient, part), step.grads)
    step.apply(optimizer)
