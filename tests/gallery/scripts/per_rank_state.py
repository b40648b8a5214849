"""Each rank counts what it has seen: per-rank state that is tracked as such."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd

model = nn.Linear(4, 4)
data = mx.random.normal((64, 4))


def loss_fn(model, x):
    return nn.losses.mse_loss(model(x), x * 2)


loss_and_grad = nn.value_and_grad(model, loss_fn)
optimizer = optim.SGD(0.1)
run = elasticd.Run(model=model, optimizer=optimizer, data=data)
seen = {"samples": 0, "grains": 0}
run.track("seen", seen, per_rank=True)
for step in run.steps():
    for batch in step.micro_batches():
        step.accumulate(*loss_and_grad(model, batch))
        seen["samples"] += len(batch)
        seen["grains"] += 1
    step.apply(optimizer)
print(f"rank {run.rank} has seen {seen}")
