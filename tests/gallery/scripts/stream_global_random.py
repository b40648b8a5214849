"""A stream that shuffles and draws from the global generators while it is read."""

import random

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np

import elasticd

CORPUS = np.random.default_rng(0).integers(0, 16, 400).astype(np.int32)


def crops():
    while True:
        start = random.randrange(len(CORPUS) - 9)
        crop = CORPUS[start : start + 9].copy()
        if np.random.random() < 0.3:
            crop[np.random.randint(9)] = 0
        jitter = mx.random.normal((1,)).item()
        yield crop, np.float32(jitter)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(16, 8)
        self.out = nn.Linear(8, 16)

    def __call__(self, x, jitter):
        return self.out(self.embedding(x) * (1 + 0.01 * jitter[:, None, None]))


def loss_fn(model, tokens, jitter):
    logits = model(tokens[:, :-1], jitter)
    return nn.losses.cross_entropy(logits, tokens[:, 1:]).mean()


run = elasticd.Run(model=Model(), optimizer=optim.AdamW(1e-2), loss=loss_fn, data=crops)
for step in run:
    pass
