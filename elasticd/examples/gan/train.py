"""A generative adversarial network with two optimizers, in the low-level form.

Both gradients are of the same batch. The body updates each half with its own optimizer, and tells
elasticd so with ``step.skip()``. The optimizers are given to ``run.track``, so that what they keep
survives.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np
import numpy.typing as npt

import elasticd

LATENT = 8
WIDTH = 48
POINTS = 2048
RADIUS, SPREAD = 1.0, 0.05
PRINT_EVERY = 25


def ring(count: int) -> npt.NDArray[np.float32]:
    """Points near a circle."""
    dice = np.random.default_rng(5)
    angle, radius = dice.uniform(0, 2 * np.pi, count), dice.normal(RADIUS, SPREAD, count)
    points = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    return points.astype(np.float32)


class Gan(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.generator = layers(LATENT, 2)
        self.discriminator = layers(2, 1)


def layers(inputs: int, outputs: int) -> nn.Sequential:
    # Its ReLU is compiled nowhere, so that it has the same bits with and without a compiler.
    return nn.Sequential(
        nn.Linear(inputs, WIDTH), relu, nn.Linear(WIDTH, WIDTH), relu, nn.Linear(WIDTH, outputs)
    )


def relu(x: mx.array) -> mx.array:
    return mx.maximum(x, 0.1 * x)


def softplus(x: mx.array) -> mx.array:
    return mx.logaddexp(x, 0)


def discriminator_loss(discriminator: nn.Module, real: mx.array, fake: mx.array) -> mx.array:
    """How little it tells the real from the fake."""
    return softplus(-discriminator(real)).mean() + softplus(discriminator(fake)).mean()


def generator_loss(generator: nn.Module, discriminator: nn.Module, noise: mx.array) -> mx.array:
    """How little it is taken for real."""
    return softplus(-discriminator(generator(noise))).mean()


def gradients(model: Gan, real: mx.array) -> tuple[mx.array, dict[str, Any], mx.array]:
    """The discriminator's loss, both halves' gradients, and the generator's loss."""
    noise = mx.random.normal((len(real), LATENT))
    fake = model.generator(noise)
    one = nn.value_and_grad(model.discriminator, discriminator_loss)
    lost, of_discriminator = one(model.discriminator, real, fake)
    other = nn.value_and_grad(model.generator, generator_loss)
    fooled, of_generator = other(model.generator, model.discriminator, noise)
    return lost, {"discriminator": of_discriminator, "generator": of_generator}, fooled


def main() -> None:
    model = Gan()
    optimizers = {
        "discriminator": optim.Adam(learning_rate=2e-3, betas=[0.5, 0.99]),
        "generator": optim.Adam(learning_rate=1e-3, betas=[0.5, 0.99]),
    }
    run = elasticd.Run(model=model, data=ring(POINTS))
    for half, optimizer in optimizers.items():
        optimizer.init(model[half].trainable_parameters())
        run.track(half, optimizer)
    for step in run.steps():
        for real in step.micro_batches():
            loss, grads, fooled = gradients(model, real)
            step.accumulate(loss, grads, metrics={"generator": fooled})
        for half, optimizer in optimizers.items():
            optimizer.update(model[half], step.grads[half])
        step.skip()  # both halves are updated
        if run.is_main and step.number % PRINT_EVERY == 0:
            other = step.metrics.get("generator", float("nan"))
            print(f"step {step.number}: {step.loss:.3f}, generator {other:.3f}", flush=True)

    if run.is_main:
        made = model.generator(mx.random.normal((512, LATENT), key=mx.random.key(1)))
        radius = float(mx.sqrt(mx.square(made).sum(axis=1)).mean())
        run.log(mean_radius=radius)
        print(f"mean radius of what it makes: {radius:.2f}, of the data: {RADIUS:.2f}", flush=True)


if __name__ == "__main__":
    main()
