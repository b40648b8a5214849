"""A variational autoencoder, whose loss draws from mx.random."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np

import elasticd


class Encoder(nn.Module):
    def __init__(self, num_latent_dims):
        super().__init__()
        self.proj = nn.Linear(36, 24)
        self.proj_mu = nn.Linear(24, num_latent_dims)
        self.proj_log_var = nn.Linear(24, num_latent_dims)

    def __call__(self, x):
        x = nn.leaky_relu(self.proj(x))
        mu, logvar = self.proj_mu(x), self.proj_log_var(x)
        eps = mx.random.normal(mu.shape)
        return eps * mx.exp(logvar * 0.5) + mu, mu, logvar


class VAE(nn.Module):
    def __init__(self, num_latent_dims):
        super().__init__()
        self.encoder = Encoder(num_latent_dims)
        self.decoder = nn.Sequential(
            nn.Linear(num_latent_dims, 24), nn.LeakyReLU(), nn.Linear(24, 36), nn.Sigmoid()
        )

    def __call__(self, x):
        z, mu, logvar = self.encoder(x)
        return self.decoder(z), mu, logvar


def loss_fn(model, X):
    X_recon, mu, logvar = model(X)
    recon_loss = nn.losses.mse_loss(X_recon, X, reduction="sum")
    kl_div = -0.5 * mx.sum(1 + logvar - mu.square() - logvar.exp())
    return (recon_loss + kl_div) / X.shape[0]


images = np.random.default_rng(3).random((120, 36)).astype(np.float32)
model = VAE(num_latent_dims=4)
run = elasticd.Run(model=model, optimizer=optim.AdamW(1e-3), loss=loss_fn, data=images)
for step in run:
    if run.is_main and step.number % 8 == 0:
        print(f"Step {step.number:4d} | Loss {step.loss:10.4f}")
