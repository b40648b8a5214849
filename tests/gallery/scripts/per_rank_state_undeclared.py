"""Each rank counts what it has seen, and tracks that as if it were the same on all of them."""

# /// gallery
# expect = "named"
# words = ["seen"]
# ///

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd

model = nn.Linear(4, 4)
data = mx.random.normal((64, 4))


def loss_fn(model, x):
    return nn.losses.mse_loss(model(x), -x)


loss_and_grad = nn.value_and_grad(model, loss_fn)
optimizer = optim.SGD(0.1)
run = elasticd.Run(model=model, optimizer=optimizer, data=data)
seen = {"samples": 0}
run.track("seen", seen)
for step in run.steps():
    for batch in step.micro_batches():
        step.accumulate(*loss_and_grad(model, batch))
        seen["samples"] += len(batch)
    step.apply(optimizer)
