"""Stochastic weight averaging: the last steps' weights are averaged and loaded behind the loop."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
from mlx.utils import tree_flatten

import elasticd

START = 15

model = nn.Sequential(nn.Linear(5, 10), nn.Tanh(), nn.Linear(10, 1))
x = mx.random.normal((80, 5))
y = x.square().sum(axis=1, keepdims=True)


def loss_fn(model, x, y):
    return nn.losses.mse_loss(model(x), y)


data = list(zip(x, y, strict=True))
run = elasticd.Run(model=model, optimizer=optim.SGD(0.02), loss=loss_fn, data=data)
average = {name: mx.zeros_like(value) for name, value in tree_flatten(model.parameters())}
averaged = {"count": 0}
run.track("average", average)
run.track("averaged", averaged)
for step in run:
    if step.number >= START:
        n = averaged["count"] = averaged["count"] + 1
        for name, value in tree_flatten(model.parameters()):
            average[name] = average[name] + (value - average[name]) / n
assert averaged["count"] == 24 - START + 1, averaged
model.load_weights(list(average.items()))
print(f"averaged over {averaged['count']}: loss {loss_fn(model, x, y).item():.4f}")
