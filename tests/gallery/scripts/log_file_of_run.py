"""run.open: each step stands in the log once, whoever was main when."""

import csv

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd

model = nn.Linear(3, 3)
x = mx.random.normal((64, 3))


def loss_fn(model, x):
    return nn.losses.mse_loss(model(x), 1 - x)


run = elasticd.Run(model=model, optimizer=optim.Adam(0.01), loss=loss_fn, data=x)
log = run.open("metrics.csv")
writer = csv.writer(log)
for step in run:
    writer.writerow([step.number, f"{step.loss:.6f}"])
log.close()
if run.is_main:
    with open(run.output_dir / "metrics.csv") as file:
        numbers = [int(row[0]) for row in csv.reader(file)]
    assert numbers == list(range(1, 25)), numbers
