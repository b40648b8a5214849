"""The learning rate is divided by ten at one step, in the loop's body."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd

X = mx.random.normal((128, 8))
Y = mx.tanh(X[:, :1] * 2 - X[:, 1:2])

model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = optim.Adam(learning_rate=1e-2)
run = elasticd.Run(
    model=model,
    optimizer=optimizer,
    loss=lambda model, x, y: nn.losses.mse_loss(model(x), y),
    data=list(zip(X, Y, strict=True)),
)
for step in run:
    if step.number == 15:
        optimizer.learning_rate = 1e-3
    if run.is_main:
        print(step.number, step.loss, optimizer.learning_rate.item())
