"""One rank alone leaves its loop before the last step; with ``--all`` every rank does."""

import sys

import mlx.nn as nn
import mlx.optimizers as optim
from common import CLASSES, INPUTS, Samples  # type: ignore[import-not-found]

import elasticd

model = nn.Linear(INPUTS, CLASSES)
run = elasticd.Run(
    model=model,
    optimizer=optim.SGD(learning_rate=0.1),
    loss=lambda model, batch: nn.losses.cross_entropy(model(batch["x"]), batch["y"]).mean(),
    data=Samples(0.0),
)
for step in run:
    if step.number == 5 and (run.rank == 0 or "--all" in sys.argv):
        break
