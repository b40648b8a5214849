"""Only main opens a log, before the loop: another rank that becomes main has none."""

# /// gallery
# expect = "named"
# words = ["run.open"]
# ///

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd

model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 4))
data = mx.random.normal((64, 4))


def loss_fn(model, x):
    return nn.losses.mse_loss(model(x), mx.abs(x))


run = elasticd.Run(model=model, optimizer=optim.Adam(0.01), loss=loss_fn, data=data)
log = open(run.output_dir / "train.log", "a") if run.is_main else None
for step in run:
    if run.is_main:
        print(f"step {step.number}: {step.loss:.5f}", file=log, flush=True)
        log.flush()
