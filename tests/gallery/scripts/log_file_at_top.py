"""A log file is opened for writing at top level; at the end it must have every step."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd

log = open("train.log", "w")
log.write("begin\n")
model = nn.Linear(4, 2)
x = mx.random.normal((64, 4))


def loss_fn(model, x):
    return (model(x) - x[:, :2]).square().mean()


run = elasticd.Run(model=model, optimizer=optim.SGD(0.1), loss=loss_fn, data=x)
lines = 1
for step in run:
    log.write(f"{step.number} {step.loss}\n")
    log.flush()
    lines += 1
log.close()
with open("train.log") as file:
    written = file.read().splitlines()
assert len(written) == lines, f"of {lines} lines {len(written)} are left"
