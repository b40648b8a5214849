"""Only main lowers the learning rate: the ranks drift apart."""

# /// gallery
# expect = "named"
# words = ["rank"]
# ///

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd

model = nn.Linear(4, 2)
x = mx.random.normal((64, 4))
data = list(zip(x, x[:, 1:3], strict=True))


def loss_fn(model, x, y):
    return nn.losses.mse_loss(model(x), y)


optimizer = optim.SGD(0.1)
run = elasticd.Run(model=model, optimizer=optimizer, loss=loss_fn, data=data)
for step in run:
    if run.rank == 0 and step.number > 8:
        optimizer.learning_rate = 0.1 / step.number
