"""float16 with a loss scale that is halved after an overflow and doubled when all goes well."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
from mlx.utils import tree_flatten, tree_map

import elasticd

model = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 1))
model.set_dtype(mx.float16)
x = mx.random.normal((80, 6)).astype(mx.float16)
y = x[:, :1] * 3
scaler = {"scale": 2.0**14, "good": 0}


def loss_fn(model, x, y):
    return nn.losses.mse_loss(model(x).astype(mx.float32), y.astype(mx.float32)) * scaler["scale"]


value_and_grad = nn.value_and_grad(model, loss_fn)
optimizer = optim.SGD(0.02, momentum=0.5)
run = elasticd.Run(model=model, optimizer=optimizer, data=list(zip(x, y, strict=True)))
run.track("scaler", scaler)
for step in run.steps():
    for batch in step.micro_batches():
        loss, grads = value_and_grad(model, *batch)
        step.accumulate(loss / scaler["scale"], grads)
    grads = tree_map(lambda g: g.astype(mx.float32) / scaler["scale"], step.grads)
    finite = all(mx.isfinite(g).all().item() for _, g in tree_flatten(grads))
    if not finite:
        grads = tree_map(mx.zeros_like, grads)
    step.grads = tree_map(lambda g: g.astype(mx.float16), grads)
    step.apply(optimizer)
    scaler["good"] = scaler["good"] + 1 if finite else 0
    if not finite:
        scaler["scale"] /= 2
    elif scaler["good"] % 6 == 0:
        scaler["scale"] *= 2
