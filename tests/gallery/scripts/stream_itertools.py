"""An endless stream out of itertools: a cycle over shards, chained, with every third left out."""

import itertools

import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np

import elasticd

shards = [np.random.default_rng(seed).normal(size=(20, 4)).astype(np.float32) for seed in range(4)]


def stream():
    rows = itertools.chain.from_iterable(itertools.cycle(shards))
    return itertools.compress(rows, itertools.cycle([1, 1, 0]))


model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))


def loss_fn(model, x):
    return nn.losses.cosine_similarity_loss(model(x), x[:, ::-1], reduction="mean")


run = elasticd.Run(model=model, optimizer=optim.SGD(0.1), loss=loss_fn, data=stream)
for step in run:
    pass
