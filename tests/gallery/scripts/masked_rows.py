"""Prompt masking leaves some micro-batches without any token that counts."""

# /// gallery
# settings = { "batch.micro" = 1, "batch.global" = 6 }
# ///

import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np

import elasticd

rng = np.random.default_rng(3)


def example(i):
    tokens = rng.integers(0, 12, 8).astype(np.int32)
    # Half of the examples are all prompt.
    mask = np.zeros(7, np.float32) if i % 2 else (np.arange(7) >= i % 7).astype(np.float32)
    return {"tokens": tokens, "mask": mask}


data = [example(i) for i in range(75)]
model = nn.Sequential(nn.Embedding(12, 12), nn.Linear(12, 12), nn.SiLU(), nn.Linear(12, 12))


def loss_fn(model, batch):
    tokens, mask = batch["tokens"], batch["mask"]
    ce = nn.losses.cross_entropy(model(tokens[:, :-1]), tokens[:, 1:])
    count = mask.sum()
    return elasticd.Weighted((ce * mask).sum() / count, count)  # 0 / 0 where nothing counts


run = elasticd.Run(model=model, optimizer=optim.AdamW(1e-2), loss=loss_fn, data=data)
for step in run:
    assert step.loss == step.loss, f"the loss of step {step.number} is not a number"
