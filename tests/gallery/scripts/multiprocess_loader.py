"""Processes of the script's own prepare the data, started the way macOS starts them."""

import multiprocessing

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd


def collatz(number):
    """How many steps it takes to one, beside the number's bits."""
    bits, steps = [float(number >> i & 1) for i in range(8)], 0
    while number > 1:
        number, steps = (number // 2 if number % 2 == 0 else 3 * number + 1), steps + 1
    return bits, float(steps)


def loss_fn(model, x, y):
    return nn.losses.mse_loss(model(x).squeeze(-1), y / 100)


def main():
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        made = pool.map(collatz, range(1, 129))
    data = [(mx.array(bits), mx.array(steps)) for bits, steps in made]
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    run = elasticd.Run(model=model, optimizer=optim.Adam(1e-2), loss=loss_fn, data=data)
    for step in run:
        if run.is_main:
            print(f"[{step.number:02d}] {step.loss:.5f}")


if __name__ == "__main__":
    main()
