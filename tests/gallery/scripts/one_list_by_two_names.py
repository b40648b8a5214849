"""One list, and one array, are kept under several names, and changed in place by one of them."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np

import elasticd

data = mx.random.normal((96, 6))


def loss_fn(model, x):
    pull = sum(run.state.all[-3:]) - sum(run.state.lately[-3:]) + run.state.scale.sum()
    return mx.square(model(x) - x).mean() + 0.01 * (1 + pull) * mx.square(model.weight).mean()


model = nn.Linear(6, 6)
optimizer = optim.SGD(5e-2, momentum=0.9)
run = elasticd.Run(model=model, optimizer=optimizer, loss=loss_fn, data=data)
slow = {"weight": model.weight, "moments": {}}
run.track("slow", slow)
counts = np.zeros(3)
run.state.all = run.state.lately = []
run.state.counts, run.state.first = counts, counts[:1]
run.state.scale = mx.zeros(3)
for step in run:
    run.state.all.append(step.loss)
    if step.number % 7 == 0:
        run.state.lately = []
    if step.number % 8 == 0:
        run.state.lately = run.state.all
        slow["moments"] = run.state.moments = dict(optimizer.state["weight"])
    run.state.counts[step.number % 3] += 1
    slow["weight"] += 0.5 * (model.weight - slow["weight"])
    run.state.scale[step.number % 3] = 0.1 * float(run.state.first[0])
    if slow["moments"]:
        slow["moments"]["v"] *= 0.5
        model.weight = model.weight - 0.01 * run.state.moments["v"]
    if step.number % 5 == 0:
        model.weight = slow["weight"]
