"""Rows by position, whose tokens are made once and kept on the disk; batches are padded."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np

import elasticd
from elasticd import data


def encode(row):
    return [1, *row["text"].encode(), 2]


def padded(samples):
    width = max(map(len, samples))
    tokens = np.stack([np.pad(each, (0, width - len(each))) for each in samples])
    return mx.array(tokens)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(256, 8), nn.Linear(8, 256)

    def __call__(self, x):
        return self.head(mx.tanh(self.embedding(x)))


def loss_fn(model, tokens):
    mask = tokens[:, 1:] > 0
    losses = nn.losses.cross_entropy(model(tokens[:, :-1]), tokens[:, 1:]) * mask
    return elasticd.Weighted(losses.sum() / mask.sum(), mask.sum())


tokens = data.cached(data.JsonLines("a.jsonl"), encode, key="bytes", folder="tokens")
run = elasticd.Run(
    model=Model(), optimizer=optim.Adam(1e-2), loss=loss_fn, data=tokens, collate=padded
)
for step in run:
    print(step.number, step.loss)
