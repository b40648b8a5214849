"""The loss asks for the step by an argument of that name, to warm a term up."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Linear(8, 6), nn.Linear(3, 8)

    def __call__(self, x):
        mu, log_var = mx.split(self.encoder(x), 2, axis=-1)
        z = mu + mx.exp(0.5 * log_var) * mx.random.normal(mu.shape)
        return self.decoder(z), mu, log_var


def loss_fn(model, x, *, step):
    out, mu, log_var = model(x)
    kl = -0.5 * mx.mean(1 + log_var - mu.square() - log_var.exp())
    return nn.losses.mse_loss(out, x) + mx.minimum(step / 20, 1.0) * kl


data = mx.random.normal((90, 8))
run = elasticd.Run(model=VAE(), optimizer=optim.Adam(5e-3), loss=loss_fn, data=data)
for step in run:
    print(step.number, step.loss)
