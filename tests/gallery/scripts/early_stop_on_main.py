"""Early stopping on a validation metric that main alone computes, from files that it alone has."""

import json

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd

PATIENCE = 2

x = mx.random.normal((128, 4))
y = mx.sin(2 * x).sum(axis=1, keepdims=True)
model = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 1))
optimizer = optim.Adam(learning_rate=0.03)


def loss_fn(model, x, y):
    return nn.losses.mse_loss(model(x), y)


def validate():
    loss = run.evaluate(lambda model: loss_fn(model, x[96:], y[96:]).item())
    (run.output_dir / "validation.json").write_text(json.dumps({"loss": loss}))
    return loss


run = elasticd.Run(
    model=model, optimizer=optimizer, loss=loss_fn, data=list(zip(x[:96], y[:96], strict=True))
)
run.state.best, run.state.bad = float("inf"), 0
for step in run:
    if step.number % 2:
        continue
    loss = run.on_main(validate)
    if loss < run.state.best * 0.9:
        run.state.best, run.state.bad = loss, 0
    else:
        run.state.bad += 1
    if run.state.bad > PATIENCE:
        run.stop(f"no better than {run.state.best:.3f} for {run.state.bad} validations")
