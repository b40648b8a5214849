"""A trainer class whose stream shuffles anew, and whose body draws from self.rng."""

import random

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd


class Trainer:
    def __init__(self, model, seed):
        self.model, self.seed, self.rng = model, seed, random.Random(seed)
        self.rows = mx.random.normal((60, 3))

    def stream(self):
        order = random.Random(self.seed + 1)
        while True:
            yield self.rows[order.randrange(60)]

    def loss(self, model, x):
        return (model(x) - mx.sin(x)).square().mean()

    def train(self):
        run = elasticd.Run(
            model=self.model, optimizer=optim.SGD(0.05), loss=self.loss, data=self.stream
        )
        for step in run:
            self.model.weight = self.model.weight * self.rng.uniform(0.98, 1.02)
            print(step.number, step.loss)


Trainer(nn.Linear(3, 3), 5).train()
