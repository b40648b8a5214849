"""The low-level form changes from Adam to SGD in the middle: another optimizer for apply."""

# /// gallery
# expect = "fails"
# words = ["optimizer"]
# ///

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd

model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))
data = mx.random.normal((64, 4))


def loss_fn(model, x):
    return nn.losses.mse_loss(model(x), 2 * x)


loss_and_grad = nn.value_and_grad(model, loss_fn)
adam, sgd = optim.Adam(1e-2), optim.SGD(0.05, momentum=0.9)
run = elasticd.Run(model=model, data=data)
for step in run.steps():
    for batch in step.micro_batches():
        step.accumulate(*loss_and_grad(model, batch))
    step.apply(adam if step.number <= 12 else sgd)
