"""run.on_main above the loop, above the update and below it, in a loop of the script's own."""

import json

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd

model = nn.Linear(4, 1)
x = mx.random.normal((64, 4))
y = x[:, :1] - x[:, 1:2]


def loss_fn(model, x, y):
    return nn.losses.mse_loss(model(x), y)


optimizer = optim.Adam(0.05)
run = elasticd.Run(model=model, optimizer=optimizer, data=list(zip(x, y, strict=True)))
loss_and_grad = nn.value_and_grad(model, loss_fn)


def read_plan():
    path = run.output_dir / "plan.json"
    path.write_text(json.dumps({"rates": [0.05 * 0.9**n for n in range(8)]}))
    return json.loads(path.read_text())


plan = run.on_main(read_plan)
for step in run.steps():
    scale = run.on_main(lambda: mx.full((1,), plan["rates"][step.number % 8]))
    for batch in step.micro_batches():
        step.accumulate(*loss_and_grad(model, *batch))
    optimizer.learning_rate = scale.item()
    step.apply()
    first, second = run.on_main(lambda: (step.number, 0.001 * step.number))
    model.bias = model.bias + second / first
