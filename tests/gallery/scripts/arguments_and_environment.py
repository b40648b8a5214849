"""Settings come from sys.argv and from the environment."""

# /// gallery
# settings = { "job.args" = ["0.02", "tanh"], "job.env" = { HIDDEN = "14" } }
# ///

import os
import sys

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd

if len(sys.argv) != 3:
    sys.exit(f"usage: {sys.argv[0]} RATE ACTIVATION")
rate, activation = float(sys.argv[1]), getattr(nn, sys.argv[2])
hidden = int(os.environ.get("HIDDEN", "8"))

x = mx.random.uniform(-1, 1, (90, 3))
y = mx.sin(3 * x).sum(axis=1, keepdims=True)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.l1, self.l2 = nn.Linear(3, hidden), nn.Linear(hidden, 1)

    def __call__(self, x):
        return self.l2(activation(self.l1(x)))


def mse(model, x, y):
    return ((model(x) - y) ** 2).mean()


run = elasticd.Run(
    model=Net(), optimizer=optim.Adagrad(rate), loss=mse, data=list(zip(x, y, strict=True))
)
for step in run:
    pass
print(run.digest())
