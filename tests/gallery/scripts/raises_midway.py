"""A script that runs into an error of its own in the middle of training."""

# /// gallery
# expect = "fails"
# words = ["KeyError", "accuracy"]
# ///

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd

data = mx.random.normal((64, 4))
model = nn.Linear(4, 4)


def loss_fn(model, x):
    return (model(x) - x).square().mean()


run = elasticd.Run(model=model, optimizer=optim.SGD(0.1), loss=loss_fn, data=data)
history = {"loss": []}
for step in run:
    history["loss"].append(step.loss)
    if step.number % 9 == 0:
        print(history["accuracy"][-1])
