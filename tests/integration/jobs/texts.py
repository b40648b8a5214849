"""Data in a list of texts with paths in them: builds have told of them in other ways."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
from common import hurry_file, options, work  # type: ignore[import-not-found]

import elasticd

data = [f"read /etc/hosts and say what it is, {'please, ' * number}now" for number in range(96)]
pace_seconds, hurry = options().pace_seconds, hurry_file()


def collate(texts: list[str]) -> mx.array:
    if not hurry.exists():
        work(pace_seconds * len(texts))
    return mx.array([[1.0, len(text) / 100] for text in texts])


def loss(model: nn.Linear, batch: mx.array) -> mx.array:
    return model(batch).square().mean()


model = nn.Linear(2, 1)
optimizer = optim.SGD(1e-3)
run = elasticd.Run(model=model, optimizer=optimizer, loss=loss, data=data, collate=collate)
for step in run:
    print(step.number, step.loss, flush=True)
