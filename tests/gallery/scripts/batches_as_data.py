"""The data yields whole batches, as mlx-lm's iterate_batches does: each is one sample here."""

# /// gallery
# settings = { "batch.global" = 4, "batch.micro" = 1 }
# ///

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np

import elasticd

rows = [np.random.default_rng(i).integers(0, 12, 4 + i % 7) for i in range(64)]


def iterate_batches(rows, batch_size=4):
    order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
    batches = [order[i : i + batch_size] for i in range(0, len(order), batch_size)]
    while True:
        for i in np.random.default_rng(0).permutation(len(batches)):
            chosen = [rows[j] for j in batches[i]]
            padded = np.zeros((batch_size, 12), np.int32)
            for place, row in zip(padded, chosen, strict=True):
                place[: len(row)] = row
            yield padded, np.array([len(row) for row in chosen], np.int32)


def only_batch(samples):
    (batch,) = samples
    return tuple(mx.array(part) for part in batch)


model = nn.Sequential(nn.Embedding(12, 8), nn.Linear(8, 12))


def loss_fn(model, batch, lengths):
    mask = mx.arange(batch.shape[1] - 1)[None] < lengths[:, None] - 1
    ce = nn.losses.cross_entropy(model(batch[:, :-1]), batch[:, 1:]) * mask
    return elasticd.Weighted(ce.sum() / mask.sum(), mask.sum())


run = elasticd.Run(
    model=model,
    optimizer=optim.Adam(1e-2),
    loss=loss_fn,
    data=lambda: iterate_batches(rows),
    collate=only_batch,
)
for step in run:
    print(step.number, step.loss)
