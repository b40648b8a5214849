"""SGD with momentum in the shortest low-level loop, one sample a micro-batch."""

# /// gallery
# settings = { "batch.global" = 6, "batch.micro" = 1 }
# ///

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd

w_star = mx.random.normal((10,))
X = mx.random.normal((100, 10))
y = X @ w_star + 1e-2 * mx.random.normal((100,))
model = nn.Linear(10, 1, bias=False)


def loss_fn(model, batch):
    x, y = batch
    return 0.5 * mx.mean(mx.square(model(x)[:, 0] - y))


optimizer = optim.SGD(learning_rate=0.02, momentum=0.9)
grad_fn = nn.value_and_grad(model, loss_fn)
run = elasticd.Run(model=model, optimizer=optimizer, data=list(zip(X, y, strict=True)))
for step in run.steps():
    for batch in step.micro_batches():
        step.accumulate(*grad_fn(model, batch))
    step.apply()
error = mx.sum(mx.square(model.weight[0] - w_star)).item() ** 0.5
print(f"|w-w*| = {error:.5f}")
