"""A trainer class that keeps random.Random, and a sampler with another, in its attributes."""

import random

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd


class Sampler:
    """Which of some tasks is next: the harder ones more often."""

    def __init__(self, seed):
        self.dice = random.Random(seed)

    def draw(self, weights):
        return self.dice.choices(range(len(weights)), weights)[0]


class Trainer:
    def __init__(self, model, data, seed=5):
        self.model, self.data = model, data
        self.rng = random.Random(seed)
        self.sampler = Sampler(seed + 1)
        self.optimizer = optim.SGD(0.05)

    @staticmethod
    def loss(model, x):
        return (model(x) - mx.sin(x)).square().mean()

    def train(self):
        run = elasticd.Run(
            model=self.model, optimizer=self.optimizer, loss=self.loss, data=self.data
        )
        run.state.task = 0
        for step in run:
            jitter = self.rng.uniform(0.8, 1.25)
            run.state.task = self.sampler.draw([1, 2, 3])
            self.optimizer.learning_rate = 0.05 * jitter / (1 + run.state.task)
            if run.is_main:
                print(step.number, step.loss, self.optimizer.learning_rate.item())


def main():
    data = mx.random.normal((72, 3))
    model = nn.Sequential(nn.Linear(3, 12), nn.Tanh(), nn.Linear(12, 3))
    Trainer(model, data).train()


if __name__ == "__main__":
    main()
