"""Rows of many files of JSON lines, one of them compressed, shuffled and read ahead."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np

import elasticd
from elasticd import data

WIDTH = 12


def tokens(row):
    text = row["text"].encode()[:WIDTH].ljust(WIDTH)
    return np.frombuffer(text, np.uint8).astype(np.int32)


def blanked(tokens):
    """Draws, so it stands behind prefetch()."""
    return np.where(np.random.random(WIDTH) < 0.1, 32, tokens)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(256, 8), nn.Linear(8, 256)

    def __call__(self, x):
        return self.head(mx.tanh(self.embedding(x)))


def loss_fn(model, x):
    return nn.losses.cross_entropy(model(x[:, :-1]), x[:, 1:], reduction="mean")


rows = data.JsonLines("rows/*.jsonl", "rows/*.jsonl.gz").stream()
stream = rows.map(tokens).shuffle(16, seed=5).prefetch(8).map(blanked)
run = elasticd.Run(model=Model(), optimizer=optim.Adam(1e-2), loss=loss_fn, data=stream)
for step in run:
    if run.is_main:
        print(step.number, step.epoch, step.loss)
