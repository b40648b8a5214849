"""A model so wide that its sums are made along the ring."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
from common import CLASSES, INPUTS, Samples, options  # type: ignore[import-not-found]

import elasticd

WIDTH = 512


def loss(model: nn.Module, batch: dict[str, mx.array]) -> mx.array:
    return nn.losses.cross_entropy(model(batch["x"]), batch["y"]).mean()


model = nn.Sequential(
    nn.Linear(INPUTS, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(),
    nn.Linear(WIDTH, CLASSES),
)  # fmt: skip
run = elasticd.Run(
    model=model,
    optimizer=optim.AdamW(learning_rate=1e-3),
    loss=loss,
    data=Samples(options().pace_seconds),
)
for step in run:
    print(f"step {step.number} loss {step.loss:.4f}", flush=True)
print("digest", run.digest(), flush=True)
