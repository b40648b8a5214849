"""A rate that falls when the loss stands still, joined behind a warm-up and scaled."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np

import elasticd


class Plateau:
    def __init__(self, rate):
        self.rate, self.best, self.bad = rate, float("inf"), 0

    def __call__(self, step):
        return mx.array(self.rate)

    def report(self, loss):
        if loss < self.best * 0.9:
            self.best, self.bad = loss, 0
            return
        self.bad += 1
        if self.bad > 1:
            self.rate, self.bad = self.rate / 2, 0


rows = [np.random.randn(8).astype(np.float32) for _ in range(40)]
plateau = Plateau(0.1)
joined = optim.join_schedules([optim.linear_schedule(0.0, 0.1, 3), plateau], [3])
rate = elasticd.scaled_learning_rate(joined, base_batch=8, batch=16)


def loss_fn(model, x):
    return mx.square(model(x)[:, 0] - x.sum(1)).mean()


run = elasticd.Run(model=nn.Linear(8, 1), optimizer=optim.Adam(rate), loss=loss_fn, data=rows)
for step in run:
    plateau.report(step.loss)
