"""A loader with a state that draws its order from Python's generator when it is made."""

import random

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd

rows = mx.random.normal((40, 5), key=mx.random.key(7))


class Loader:
    def __init__(self):
        self.order, self.at = list(range(len(rows))), 0
        random.shuffle(self.order)

    def __iter__(self):
        return self

    def __next__(self):
        if self.at == len(self.order):
            raise StopIteration
        self.at += 1
        return rows[self.order[self.at - 1]]

    def state(self):
        return {"at": self.at}

    def load_state(self, state):
        self.at = state["at"]


model = nn.Linear(4, 1)


def loss_fn(model, row):
    return ((model(row[:, :4])[:, 0] - row[:, 4]) ** 2).mean()


run = elasticd.Run(model=model, optimizer=optim.SGD(0.05), loss=loss_fn, data=Loader)
for step in run:
    if run.is_main:
        print(step.number, step.epoch, step.loss)
