"""A stream's function keeps its results (lru_cache), and what stands behind it changes them."""

# /// gallery
# expect = "refused"
# words = ["data=", "changes", "lru_cache", "copy"]
# ///

import functools

import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np

import elasticd

TEXTS = ["the first line", "another one", "a third of them", "the last"]


@functools.lru_cache
def codes(text):
    return np.frombuffer(text.encode()[:8], np.uint8).astype(np.float32)


def scaled(row):
    row /= 128
    return row


def stream():
    for text in TEXTS:
        yield scaled(codes(text))


model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))


def loss_fn(model, x):
    return ((model(x)[:, 0] - x.mean(axis=1)) ** 2).mean()


run = elasticd.Run(model=model, optimizer=optim.Adam(1e-2), loss=loss_fn, data=stream)
for step in run:
    pass
