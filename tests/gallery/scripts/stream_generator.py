"""Data is a generator function that reads and cleans lines, begun anew when it ends."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd

LINES = """alpha,0.5,1.5
beta,1.0,0.25
# a comment
gamma,-0.75,2.0
delta,0.1,-1.1

epsilon,2.5,0.6
zeta,-1.4,-0.3
eta,0.0,0.9"""


def records():
    for line in LINES.splitlines():
        if not line or line.startswith("#"):
            continue
        name, *numbers = line.split(",")
        yield {"x": [float(n) for n in numbers], "length": float(len(name))}


model = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))


def collate(samples):
    x = mx.array([sample["x"] for sample in samples])
    return x, mx.array([[sample["length"]] for sample in samples])


def loss_fn(model, x, y):
    return nn.losses.mse_loss(model(x), y)


run = elasticd.Run(
    model=model, optimizer=optim.Adam(0.02), loss=loss_fn, data=records, collate=collate
)
for step in run:
    print(f"{step.number}: {step.loss:.3f}")
