"""A normalising flow with permutations that are drawn once, and temperatures from a dataclass."""

import dataclasses

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np

import elasticd


@dataclasses.dataclass
class Config:
    width: int = 4
    couplings: int = 3
    rate: float = 3e-3
    rng: np.random.Generator = dataclasses.field(default_factory=lambda: np.random.default_rng(8))


class Coupling(nn.Module):
    def __init__(self, config):
        super().__init__()
        half = config.width // 2
        self.net = nn.Sequential(nn.Linear(half, 12), nn.Tanh(), nn.Linear(12, 2 * half))
        order = config.rng.permutation(config.width)
        self._order = mx.array(order)

    def __call__(self, x):
        fixed, moved = mx.split(x[:, self._order], 2, axis=1)
        scale, shift = mx.split(self.net(fixed), 2, axis=1)
        scale = mx.tanh(scale)
        y = mx.concatenate([fixed, moved * mx.exp(scale) + shift], axis=1)
        return y, scale.sum(1)


class Flow(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.couplings = [Coupling(config) for _ in range(config.couplings)]

    def __call__(self, x):
        total = mx.zeros(len(x))
        for coupling in self.couplings:
            x, volume = coupling(x)
            total = total + volume
        return x, total


def negative_log_likelihood(flow, x):
    z, volume = flow(x)
    return (0.5 * z.square().sum(1) - volume).mean()


def main(config):
    base = config.rng.normal(size=(100, config.width))
    data = (np.sinh(base) @ config.rng.normal(size=(config.width, config.width))).astype(np.float32)
    flow, optimizer = Flow(config), optim.Adam(config.rate)

    def dequantised(samples):
        x = np.stack(samples)
        return mx.array(x + config.rng.uniform(0, 0.02, x.shape).astype(np.float32))

    run = elasticd.Run(
        model=flow,
        optimizer=optimizer,
        loss=negative_log_likelihood,
        data=data,
        collate=dequantised,
        clip_norm=5.0,
    )
    for step in run:
        if step.number % 5 == 0:
            optimizer.learning_rate = config.rate * config.rng.uniform(0.5, 1.0)


main(Config())
