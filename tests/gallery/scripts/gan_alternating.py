"""A GAN whose discriminator and generator take turns, step by step."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np

import elasticd

LATENT = 4


class GAN(nn.Module):
    def __init__(self):
        super().__init__()
        self.generator = nn.Sequential(nn.Linear(LATENT, 16), nn.ReLU(), nn.Linear(16, 2))
        self.discriminator = nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))


def discriminator_loss(discriminator, generator, real):
    fake = mx.stop_gradient(generator(mx.random.normal((len(real), LATENT))))
    score = nn.losses.binary_cross_entropy
    on_real = score(discriminator(real), mx.ones((len(real), 1)))
    on_fake = score(discriminator(fake), mx.zeros((len(real), 1)))
    return on_real + on_fake


def generator_loss(generator, discriminator, real):
    fake = generator(mx.random.normal((len(real), LATENT)))
    return nn.losses.binary_cross_entropy(discriminator(fake), mx.ones((len(real), 1)))


angles = np.random.default_rng(1).uniform(0, 2 * np.pi, 200)
circle = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)

model = GAN()
d_optimizer = optim.Adam(2e-3, betas=[0.5, 0.999])
g_optimizer = optim.Adam(1e-3, betas=[0.5, 0.999])
d_step = nn.value_and_grad(model.discriminator, discriminator_loss)
g_step = nn.value_and_grad(model.generator, generator_loss)
optimizer = optim.MultiOptimizer([d_optimizer, g_optimizer], [lambda name, _: "disc" in name])

run = elasticd.Run(model=model, optimizer=optimizer, data=circle)
for step in run.steps():
    for real in step.micro_batches():
        if step.number % 2:
            loss, grads = d_step(model.discriminator, model.generator, real)
            step.accumulate(loss, {"discriminator": grads})
        else:
            loss, grads = g_step(model.generator, model.discriminator, real)
            step.accumulate(loss, {"generator": grads})
    step.apply()
    if run.is_main:
        print(step.number, "DG"[step.number % 2 == 0], step.loss)
