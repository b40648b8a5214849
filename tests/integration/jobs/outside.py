"""The body keeps a number in a global, which the loss reads: who joins has never had it."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
from common import CLASSES, INPUTS, Samples, options  # type: ignore[import-not-found]

import elasticd

warmth = 0.0


def loss(model: nn.Linear, batch: dict[str, mx.array]) -> mx.array:
    return (1.0 + warmth) * nn.losses.cross_entropy(model(batch["x"]), batch["y"]).mean()


model = nn.Linear(INPUTS, CLASSES)
data = Samples(options().pace_seconds)
run = elasticd.Run(model=model, optimizer=optim.SGD(1e-2), loss=loss, data=data)
for step in run:
    warmth = min(1.0, step.number / 20)
print("digest", run.digest(), flush=True)
