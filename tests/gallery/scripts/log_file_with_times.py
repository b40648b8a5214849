"""run.open in the low-level form, with lines that no two ranks write alike."""

import os
import time

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd

model = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1))
x = mx.random.normal((64, 3))
optimizer = optim.AdamW(0.01)


def loss_fn(model, x):
    return nn.losses.mse_loss(model(x), x.sum(axis=1, keepdims=True))


loss_and_grad = nn.value_and_grad(model, loss_fn)
run = elasticd.Run(model=model, optimizer=optimizer, data=x)
log = run.open("logs/train.log")
log.write(f"0 begun by {os.getpid()}\n")
began = time.time()
for step in run.steps():
    for batch in step.micro_batches():
        step.accumulate(*loss_and_grad(model, batch))
    step.apply(optimizer)
    if step.number % 2 == 0:
        print(f"{step.number} {time.time() - began} s in {os.getpid()}", file=log)
if run.is_main:
    with open(run.output_dir / "logs" / "train.log") as file:
        numbers = [int(line.split()[0]) for line in file]
    assert numbers == list(range(0, 25, 2)), numbers
