"""SAM: each micro-batch has two passes, the second where its own gradient leads uphill."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
from mlx.utils import tree_flatten, tree_map

import elasticd

RHO = 0.05

x = mx.random.normal((96, 6))
y = (x[:, :1] * x[:, 1:2] > 0).astype(mx.float32)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Dropout(0.1), nn.Linear(16, 1))
optimizer = optim.SGD(learning_rate=0.2, momentum=0.9, nesterov=True)


def loss_fn(model, x, y):
    return nn.losses.binary_cross_entropy(model(x), y, reduction="mean")


loss_and_grad = nn.value_and_grad(model, loss_fn)


def sharp(x, y):
    weights = model.trainable_parameters()
    loss, gradients = loss_and_grad(model, x, y)
    norm = mx.sqrt(sum(g.square().sum() for _, g in tree_flatten(gradients)))
    uphill = tree_map(lambda w, g: w + RHO * g / (norm + 1e-12), weights, gradients)
    model.update(uphill)
    _, gradients = loss_and_grad(model, x, y)
    mx.eval(loss, gradients)
    model.update(weights)
    return loss, gradients


run = elasticd.Run(model=model, optimizer=optimizer, data=list(zip(x, y, strict=True)))
for step in run.steps():
    for batch in step.micro_batches():
        step.accumulate(*sharp(*batch))
    step.apply(optimizer)
