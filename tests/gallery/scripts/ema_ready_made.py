"""elasticd.EMA, the ready-made average of the weights, used for validation."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd

model = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 1))
x = mx.random.normal((80, 6))
y = x.max(axis=1, keepdims=True)


def loss_fn(model, x, y):
    return nn.losses.smooth_l1_loss(model(x), y)


data = list(zip(x, y, strict=True))
run = elasticd.Run(model=model, optimizer=optim.Adam(1e-2), loss=loss_fn, data=data)
ema = elasticd.EMA(model, 0.95)
run.track("ema", ema)
for step in run:
    ema.update()
    if step.number % 12 == 0:
        with ema.applied():
            print(step.number, run.evaluate(lambda: loss_fn(model, x, y).item()))
with ema.applied():
    model.save_weights(str(run.output_dir / "ema.safetensors"))
