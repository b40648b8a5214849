"""The script handles SIGTERM and SIGINT, and registers something for its end."""

import atexit
import signal

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd

asked = []


def on_signal(number, frame):
    asked.append(number)
    print(f"signal {number}: the step will be finished first")


for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
    signal.signal(number, on_signal)
atexit.register(lambda: print("good bye"))

model = nn.Linear(5, 5)
data = mx.random.normal((70, 5))


def loss_fn(model, x):
    return nn.losses.mse_loss(model(x), mx.exp(-x.abs()))


run = elasticd.Run(model=model, optimizer=optim.Adam(0.01), loss=loss_fn, data=data)
for step in run:
    if asked:
        print(f"step {step.number}, after signals {asked}")
