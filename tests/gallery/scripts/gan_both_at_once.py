"""A GAN trained in one pass, by a gradient that is reversed between its halves."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np

import elasticd

LATENT = 4


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.l1, self.l2, self.l3 = nn.Linear(3, 16), nn.Linear(16, 16), nn.Linear(16, 1)
        self.drop = nn.Dropout(0.2)

    def __call__(self, x):
        x = self.drop(nn.leaky_relu(self.l1(x), 0.2))
        return self.l3(nn.leaky_relu(self.l2(x), 0.2)).squeeze(-1)


class GAN(nn.Module):
    def __init__(self):
        super().__init__()
        self.generator = nn.Sequential(nn.Linear(LATENT, 16), nn.Tanh(), nn.Linear(16, 3))
        self.discriminator = Discriminator()


def softplus(x):
    return mx.logaddexp(x, 0)


def loss_fn(model, real):
    noise = mx.random.normal((real.shape[0], LATENT))
    fake = model.generator(noise)
    reversed_fake = 2 * mx.stop_gradient(fake) - fake  # the generator goes the other way
    on_real, on_fake = model.discriminator(real), model.discriminator(reversed_fake)
    return (softplus(-on_real) + softplus(on_fake)).mean()


real = np.random.default_rng(5).normal(2.0, 0.5, (160, 3)).astype(np.float32)
model = GAN()
run = elasticd.Run(model=model, optimizer=optim.Adam(1e-3), loss=loss_fn, data=real)
for step in run:
    if run.is_main and step.number % 6 == 0:
        print(f"step {step.number}: {step.loss:.4f}")
