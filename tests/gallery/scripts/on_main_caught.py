"""run.on_main in a try statement, as one reads a file that may not be there."""

# /// gallery
# expect = "fails"
# words = ["FileNotFoundError", "inside of the function"]
# ///

from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd

data = mx.random.normal((64, 4))
model = nn.Linear(4, 4)
optimizer = optim.SGD(0.1)


def loss_fn(model, x):
    return (model(x) - x).square().mean()


run = elasticd.Run(model=model, optimizer=optimizer, loss=loss_fn, data=data)
for step in run:
    try:
        optimizer.learning_rate = float(run.on_main(Path("rate.txt").read_text))
    except FileNotFoundError:
        optimizer.learning_rate = 0.02
