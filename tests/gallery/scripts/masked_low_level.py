"""Token weights in the low-level form: accumulate(loss, grads, weight=ntoks)."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np

import elasticd

rng = np.random.default_rng(5)
rows = [(rng.integers(1, 10, 6).astype(np.int32), np.int32(rng.integers(1, 6))) for _ in range(64)]
model = nn.Sequential(nn.Embedding(10, 8), nn.Linear(8, 10))


def loss_fn(model, tokens, lengths):
    mask = mx.arange(5)[None] < lengths[:, None]
    ce = nn.losses.cross_entropy(model(tokens[:, :-1]), tokens[:, 1:]) * mask
    return ce.sum() / mask.sum()


loss_and_grad = nn.value_and_grad(model, loss_fn)
optimizer = optim.Adam(1e-2)
run = elasticd.Run(model=model, optimizer=optimizer, data=rows)
trained_tokens = {"count": 0}
run.track("tokens", trained_tokens)
for step in run.steps():
    for tokens, lengths in step.micro_batches():
        loss, grads = loss_and_grad(model, tokens, lengths)
        step.accumulate(loss, grads, weight=mx.minimum(lengths, 5).sum())
    step.apply(optimizer)
    trained_tokens["count"] += 16
