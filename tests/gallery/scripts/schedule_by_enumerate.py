"""The rate follows a counter of the script's own, which begins anew in a process that joins."""

# /// gallery
# expect = "left out"
# spared = ["everything"]
# words = ["state outside of run", "learning_rate"]
# ///

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd

rates = [1e-2 * 0.9**i for i in range(24)]
model = nn.Linear(3, 3)
data = mx.random.normal((70, 3))


def loss_fn(model, x):
    return nn.losses.mse_loss(model(x), x[:, ::-1])


optimizer = optim.SGD(learning_rate=rates[0])
run = elasticd.Run(model=model, optimizer=optimizer, loss=loss_fn, data=data)
for i, step in enumerate(run):
    optimizer.learning_rate = rates[i]
    if i % 10 == 0:
        print(i, step.loss)
