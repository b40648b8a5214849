"""The loss draws its random projection at its first pass, and keeps it in a global."""

# /// gallery
# expect = "left out"
# spared = ["everything"]
# words = ["state outside of run", "grain"]
# ///

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd

data = mx.random.normal((96, 6))
projection = None


def loss_fn(model, x):
    global projection
    if projection is None:
        projection = mx.random.normal((6, 3))
    return mx.square((model(x) - x) @ projection).mean()


model = nn.Linear(6, 6)
run = elasticd.Run(model=model, optimizer=optim.Adam(1e-2), loss=loss_fn, data=data)
for step in run:
    pass
