"""A denoising diffusion model on points: timesteps and noise are drawn in the loss."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np

import elasticd

T = 50
betas = mx.linspace(1e-4, 0.05, T)
alphas_cumprod = mx.cumprod(1 - betas)


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.time = nn.Embedding(T, 8)
        self.layers = [nn.Linear(10, 32), nn.Linear(32, 32), nn.Linear(32, 2)]

    def __call__(self, x, t):
        x = mx.concatenate([x, self.time(t)], axis=-1)
        for layer in self.layers[:-1]:
            x = nn.gelu_approx(layer(x))
        return self.layers[-1](x)


def loss_fn(model, x0):
    t = mx.random.randint(0, T, (x0.shape[0],))
    noise = mx.random.normal(x0.shape)
    scale = alphas_cumprod[t][:, None]
    noisy = mx.sqrt(scale) * x0 + mx.sqrt(1 - scale) * noise
    return nn.losses.mse_loss(model(noisy, t), noise)


spiral = np.linspace(0, 4 * np.pi, 150)
points = np.stack([spiral * np.cos(spiral), spiral * np.sin(spiral)], 1).astype(np.float32) / 12
model = Denoiser()
optimizer = optim.AdamW(optim.cosine_decay(2e-3, 24))
run = elasticd.Run(model=model, optimizer=optimizer, loss=loss_fn, data=points)
for step in run:
    if run.is_main and step.number % 12 == 0:
        print("step", step.number, "loss", round(step.loss, 4))
