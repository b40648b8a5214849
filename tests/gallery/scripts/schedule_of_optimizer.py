"""MLX's schedules, joined, under gradient clipping."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd

schedule = optim.join_schedules(
    [
        optim.linear_schedule(0.0, 1e-2, 4),
        optim.step_decay(1e-2, 0.7, 5),
        optim.exponential_decay(2e-3, 0.9),
    ],
    [4, 15],
)
x = mx.random.normal((100, 4))
y = mx.concatenate([x.min(axis=1, keepdims=True), x.max(axis=1, keepdims=True)], axis=1)
model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))


def loss_fn(model, x, y):
    return nn.losses.l1_loss(model(x), y)


optimizer = optim.SGD(learning_rate=schedule, momentum=0.9, nesterov=True, weight_decay=1e-4)
# Nesterov's momentum needs a dampening of nothing, which is the default.
data = list(zip(x, y, strict=True))
run = elasticd.Run(model=model, optimizer=optimizer, loss=loss_fn, data=data, clip_norm=0.5)
for step in run:
    if run.is_main:
        rate = optimizer.learning_rate.item()
        print(f"{step.number:3d}  loss {step.loss:.4f}  lr {rate:.5f}")
