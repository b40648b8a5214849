"""A script with two runs, one after the other: pre-training and fine-tuning."""

# /// gallery
# expect = "refused"
# words = ["Run"]
# ///

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd

model = nn.Linear(4, 4)
data = mx.random.normal((64, 4))


def loss_fn(model, x):
    return nn.losses.mse_loss(model(x), x)


first = elasticd.Run(model=model, optimizer=optim.SGD(0.1), loss=loss_fn, data=data)
second = elasticd.Run(model=model, optimizer=optim.Adam(0.01), loss=loss_fn, data=data)
for step in first:
    print("pre-training", step.number, step.loss)
for step in second:
    print("fine-tuning", step.number, step.loss)
