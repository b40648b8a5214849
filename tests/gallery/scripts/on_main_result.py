"""run.on_main: one rank decides, by a file that only it reads, and all ranks are told."""

import json

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd

model = nn.Linear(4, 1)
x = mx.random.normal((64, 4))
y = x[:, :1] - x[:, 1:2]


def loss_fn(model, x, y):
    return nn.losses.mse_loss(model(x), y)


data = list(zip(x, y, strict=True))
optimizer = optim.SGD(0.05)
run = elasticd.Run(model=model, optimizer=optimizer, loss=loss_fn, data=data)


def next_rate():
    path = run.output_dir / "rate.json"
    path.write_text(json.dumps({"rate": 0.05 * 0.95**step.number}))
    return json.loads(path.read_text())["rate"]


for step in run:
    optimizer.learning_rate = run.on_main(next_rate)
