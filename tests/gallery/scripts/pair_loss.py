"""mlx-lm's default loss: it returns the mean and the number of tokens as a plain pair."""

# /// gallery
# expect = "refused"
# words = ["elasticd.Weighted"]
# ///

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np

import elasticd


def default_loss(model, batch, lengths):
    inputs, targets = batch[:, :-1], batch[:, 1:]
    logits = model(inputs)
    steps = mx.arange(1, targets.shape[1] + 1)
    mask = steps < lengths
    ce = nn.losses.cross_entropy(logits, targets) * mask
    ntoks = mask.sum()
    return ce.sum() / ntoks, ntoks


rng = np.random.default_rng(0)
data = [
    (rng.integers(0, 20, 9).astype(np.int32), np.array([rng.integers(4, 9)])) for _ in range(80)
]
model = nn.Sequential(nn.Embedding(20, 8), nn.Linear(8, 20))
run = elasticd.Run(model=model, optimizer=optim.Adam(1e-3), loss=default_loss, data=data)
for step in run:
    print(f"Iter {step.number}: loss {step.loss:.3f}")
