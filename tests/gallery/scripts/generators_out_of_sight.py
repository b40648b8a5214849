"""Generators in a closure of the loss, in slots, in a deep attribute and in a partial."""

import functools
import random
from types import SimpleNamespace

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np

import elasticd


class Jitter:
    __slots__ = ("dice", "scale")

    def __init__(self, scale, seed):
        self.scale, self.dice = scale, random.Random(seed)

    def __call__(self):
        return 1 + self.scale * self.dice.uniform(-1, 1)


def make_loss(seed):
    rng = np.random.default_rng(seed)

    def loss(model, x):
        mask = mx.array((rng.random(x.shape) > 0.2).astype(np.float32))
        return nn.losses.mse_loss(model(x * mask), x)

    return loss


def main():
    data = mx.random.normal((72, 4))
    model = nn.Sequential(nn.Linear(4, 12), nn.Tanh(), nn.Linear(12, 4))
    optimizer = optim.SGD(0.05)
    jitter = Jitter(0.2, 7)
    trainer = SimpleNamespace(data=SimpleNamespace(noise=SimpleNamespace(rng=random.Random(8))))
    coin = functools.partial(np.random.Generator.random, np.random.default_rng(9))
    for step in elasticd.Run(model=model, optimizer=optimizer, loss=make_loss(6), data=data):
        optimizer.learning_rate = 0.05 * jitter() * (0.5 + trainer.data.noise.rng.random())
        if coin() < 0.3:
            model.layers[0].bias = model.layers[0].bias * 0.9
        print(step.number, step.loss)


if __name__ == "__main__":
    main()
