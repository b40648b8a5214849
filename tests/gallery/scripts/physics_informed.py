"""A network that learns a differential equation: the loss differentiates the model by its input."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np

import elasticd

rng = np.random.default_rng(21)


class Field(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.layers = [nn.Linear(1, width), nn.Linear(width, width), nn.Linear(width, 1)]

    def __call__(self, t):
        for layer in self.layers[:-1]:
            t = mx.tanh(layer(t))
        return self.layers[-1](t)


def residual(model, t):
    """Of u'' + u = 0."""

    def u(t):
        return model(t).sum()

    du = mx.grad(u)
    return mx.grad(lambda t: du(t).sum())(t) + model(t)


points = {"t": mx.linspace(0, 3, 80).reshape(-1, 1)}


def loss_fn(model, t, step):
    start = model(mx.zeros((1, 1))) - 1.0
    weight = mx.minimum(1.0, step / 10)
    return weight * residual(model, t).square().mean() + start.square().mean()


class Points:
    """Collocation points, moved a little each time one is fetched."""

    def __len__(self):
        return len(points["t"])

    def __getitem__(self, i):
        return points["t"][i] + float(rng.normal(scale=0.01))


field = Field()
optimizer = optim.Adam(optim.cosine_decay(5e-3, 24))
run = elasticd.Run(model=field, optimizer=optimizer, loss=loss_fn, data=Points(), clip_norm=1.0)
for step in run:
    if run.is_main and step.number % 6 == 0:
        print(f"{step.number}: {step.loss:.5f}, u(1) = {field(mx.ones((1, 1))).item():.3f}")
