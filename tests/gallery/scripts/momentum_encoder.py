"""MoCo: a second encoder follows slowly, and a queue of keys is a buffer of the model."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
from mlx.utils import tree_map

import elasticd

QUEUE, DIMS = 32, 6


class MoCo(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = nn.Sequential(nn.Linear(8, 12), nn.ReLU(), nn.Linear(12, DIMS))
        self.key = nn.Sequential(nn.Linear(8, 12), nn.ReLU(), nn.Linear(12, DIMS))
        self.key.update(self.query.parameters())
        self.key.freeze()
        self.queue = mx.random.normal((QUEUE, DIMS))
        self.freeze(recurse=False, keys=["queue"])

    def __call__(self, x):
        noisy = x + 0.1 * mx.random.normal(x.shape)
        q, k = self.query(x), mx.stop_gradient(self.key(noisy))
        return mx.concatenate([(q * k).sum(-1, keepdims=True), q @ self.queue.T], axis=1)

    def follow(self, momentum=0.9):
        mixed = tree_map(
            lambda k, q: momentum * k + (1 - momentum) * q,
            self.key.parameters(),
            self.query.parameters(),
        )
        self.key.update(mixed)


def loss_fn(model, x):
    logits = model(x) / 0.5
    return nn.losses.cross_entropy(logits, mx.zeros(len(x), mx.int32), reduction="mean")


data = mx.random.normal((96, 8))
model = MoCo()
run = elasticd.Run(model=model, optimizer=optim.SGD(0.05, momentum=0.9), loss=loss_fn, data=data)
for step in run:
    model.follow()
    start = step.number * 4 % len(data)
    fresh = model.key(data[start : start + 4])
    model.queue = mx.concatenate([model.queue[len(fresh) :], fresh])
