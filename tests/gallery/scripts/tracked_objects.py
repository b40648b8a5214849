"""Objects with state and load_state, a list, and random state of the script's own are tracked."""

import random

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd


class Meter:
    """A running mean and variance (Welford)."""

    def __init__(self):
        self.count, self.mean, self.m2 = 0, 0.0, 0.0

    def update(self, value):
        self.count += 1
        delta = value - self.mean
        self.mean += delta / self.count
        self.m2 += delta * (value - self.mean)

    @property
    def state(self):
        return {"count": self.count, "mean": self.mean, "m2": self.m2}

    def load_state(self, state):
        self.count, self.mean, self.m2 = int(state["count"]), state["mean"], state["m2"]


class Dice:
    """A generator of its own, whose state is a tree of numbers."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def state_dict(self):
        version, words, gauss = self.random.getstate()
        return {"version": version, "words": mx.array(words, mx.uint32), "gauss": gauss}

    def load_state_dict(self, state):
        words = tuple(int(word) for word in state["words"].tolist())
        self.random.setstate((int(state["version"]), words, state["gauss"]))


model = nn.Linear(4, 4)
data = mx.random.normal((64, 4))


def loss_fn(model, x):
    return nn.losses.mse_loss(model(x), mx.tanh(x))


optimizer = optim.Adam(1e-2)
run = elasticd.Run(model=model, optimizer=optimizer, loss=loss_fn, data=data)
meter, dice, losses = Meter(), Dice(5), []
run.track("meter", meter)
run.track("dice", dice)
run.track("losses", losses)
for step in run:
    meter.update(step.loss)
    losses.append(step.loss)
    if dice.random.random() < 0.3 and len(losses) > 4:
        optimizer.learning_rate = 1e-2 * (1 + meter.mean) * losses[-1] / losses[-4]
