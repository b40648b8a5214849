"""Early stopping by run.stop, after so many steps without progress on the validation set."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd

x = mx.random.normal((100, 4))
y = mx.sin(x[:, :1])
train, valid = list(zip(x[:80], y[:80], strict=True)), (x[80:], y[80:])
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))


def loss_fn(model, x, y):
    return nn.losses.mse_loss(model(x), y)


run = elasticd.Run(model=model, optimizer=optim.SGD(0.5), loss=loss_fn, data=train)
run.state.best, run.state.since = 1e9, 0
for step in run:
    found = run.evaluate(lambda: loss_fn(model, *valid).item())
    if found < run.state.best - 0.02:
        run.state.best, run.state.since = found, 0
    else:
        run.state.since += 1
    if run.state.since >= 4 or step.number == 19:
        run.stop(f"no progress since step {step.number - run.state.since}")
