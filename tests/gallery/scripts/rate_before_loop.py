"""Code between Run and the loop sets the rate that the body lowers later."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd

x = mx.random.normal((96, 5))
y = x @ mx.random.normal((5, 1))
model = nn.Linear(5, 1)
optimizer = optim.Adam(learning_rate=1.0)


def loss_fn(model, x, y):
    return nn.losses.mse_loss(model(x), y)


data = list(zip(x, y, strict=True))
run = elasticd.Run(model=model, optimizer=optimizer, loss=loss_fn, data=data)
optimizer.learning_rate = 0.02
patience, best = {"left": 3}, {"loss": 1e9}
run.track("patience", patience)
run.track("best", best)
for step in run:
    # Reduce on plateau.
    if step.loss < best["loss"] - 0.05:
        best["loss"], patience["left"] = step.loss, 3
    else:
        patience["left"] -= 1
    if not patience["left"]:
        optimizer.learning_rate = optimizer.learning_rate * 0.5
        patience["left"] = 3
