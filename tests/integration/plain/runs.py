"""Takes itself for a script of an elastic job."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd

run = elasticd.Run(
    model=nn.Linear(1, 1),
    optimizer=optim.SGD(0.1),
    loss=lambda model, batch: model(batch).square().mean(),
    data=[mx.zeros(1)],
)
for step in run:
    print("trained", step.number, flush=True)
