"""A GAN whose halves take turns: the loop's body freezes the one and thaws the other."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np

import elasticd

LATENT = 4


class GAN(nn.Module):
    def __init__(self):
        super().__init__()
        self.generator = nn.Sequential(nn.Linear(LATENT, 16), nn.Tanh(), nn.Linear(16, 2))
        self.discriminator = nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))


def loss_fn(model, real, step):
    fake = model.generator(mx.random.normal((len(real), LATENT)))
    on_real, on_fake = model.discriminator(real), model.discriminator(fake)
    of_discriminator = nn.softplus(-on_real).mean() + nn.softplus(on_fake).mean()
    of_generator = nn.softplus(-on_fake).mean()
    return mx.where(step % 2 == 1, of_discriminator, of_generator)


real = np.random.default_rng(3).normal(1.0, 0.3, (200, 2)).astype(np.float32)
model = GAN()
model.generator.freeze()
run = elasticd.Run(model=model, optimizer=optim.AdamW(1e-3), loss=loss_fn, data=real)
for step in run:
    trained, frozen = model.generator, model.discriminator
    if step.number % 2 == 0:
        trained, frozen = frozen, trained
    trained.unfreeze()
    frozen.freeze()
    if run.is_main:
        print(step.number, step.loss)
