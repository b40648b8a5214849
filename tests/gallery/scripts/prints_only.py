"""The shortest script that there is: the one of the README, which prints."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd

data = [(x, x.sum(keepdims=True)) for x in mx.random.normal((200, 8))]


def loss(model, batch):
    return nn.losses.mse_loss(model(batch[0]), batch[1])


run = elasticd.Run(model=nn.Linear(8, 1), optimizer=optim.Adam(0.01), loss=loss, data=data)
for step in run:  # one step of all Macs together
    print(step.number, step.loss)
