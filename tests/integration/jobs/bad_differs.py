"""Builds another model on one node than on the others."""

from pathlib import Path

import mlx.nn as nn
import mlx.optimizers as optim
from common import CLASSES, INPUTS, Samples  # type: ignore[import-not-found]

import elasticd

odd = "node-1" in Path.cwd().parts
model = nn.Linear(INPUTS, CLASSES + odd)
run = elasticd.Run(
    model=model,
    optimizer=optim.SGD(learning_rate=0.1),
    loss=lambda model, batch: nn.losses.cross_entropy(model(batch["x"]), batch["y"]).mean(),
    data=Samples(0.0),
)
for _ in run:
    pass
