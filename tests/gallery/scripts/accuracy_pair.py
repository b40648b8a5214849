"""A loss that returns (loss, accuracy), which looks like a mean and a weight."""

# /// gallery
# expect = "refused"
# words = ["elasticd.Weighted"]
# ///

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd

x = mx.random.normal((64, 6))
y = (x.sum(axis=1) > 0).astype(mx.int32)
model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))


def loss_fn(model, x, y):
    logits = model(x)
    accuracy = mx.mean(mx.argmax(logits, axis=1) == y)
    return nn.losses.cross_entropy(logits, y).mean(), accuracy


data = list(zip(x, y, strict=True))
run = elasticd.Run(model=model, optimizer=optim.Adam(1e-2), loss=loss_fn, data=data)
for step in run:
    print(step.number, step.loss)
