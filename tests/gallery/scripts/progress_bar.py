"""The run is wrapped by a progress bar, as tqdm does, with rates and an estimate."""

import sys
import time

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd


def trange(iterable, total, file=sys.stderr):
    began, done = time.perf_counter(), 0
    for item in iterable:
        yield item
        done += 1
        rate = done / (time.perf_counter() - began)
        filled = "#" * (20 * done // total)
        left = (total - done) / rate
        file.write(f"\r{done}/{total} |{filled:<20}| {rate:.1f} it/s, {left:.0f} s")
        file.flush()
    file.write("\n")


model = nn.Sequential(nn.Linear(6, 6), nn.GLU(), nn.Linear(3, 1))
x = mx.random.normal((90, 6))
data = list(zip(x, x[:, :1] * x[:, 1:2], strict=True))


def loss_fn(model, x, y):
    return nn.losses.mse_loss(model(x), y)


run = elasticd.Run(model=model, optimizer=optim.RMSprop(5e-3), loss=loss_fn, data=data)
losses, tic = [], time.perf_counter()
for step in trange(run, total=24):
    losses.append(step.loss)
    if len(losses) == 10:
        toc = time.perf_counter()
        print(f"mean loss {sum(losses) / 10:.3f}, {10 / (toc - tic):.3f} it/s")
        losses, tic = [], toc
