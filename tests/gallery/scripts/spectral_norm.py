"""A layer with spectral normalisation: the forward pass advances a power iteration in a buffer."""

# /// gallery
# settings = { "recovery.spare" = "none" }
# ///

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd


class SpectralLinear(nn.Module):
    def __init__(self, input_dims, output_dims):
        super().__init__()
        self.linear = nn.Linear(input_dims, output_dims)
        self.u = mx.random.normal((output_dims,))
        self.freeze(recurse=False, keys=["u"])

    def __call__(self, x):
        w = self.linear.weight
        if self.training:
            v = mx.stop_gradient(w.T @ self.u)
            u = mx.stop_gradient(w @ (v / mx.linalg.norm(v)))
            self.u = u / mx.linalg.norm(u)
        v = w.T @ self.u
        sigma = self.u @ (w @ (v / mx.linalg.norm(v)))
        return x @ (w / sigma).T + self.linear.bias


model = nn.Sequential(SpectralLinear(5, 10), nn.LeakyReLU(), SpectralLinear(10, 1))
x = mx.random.normal((80, 5))
y = mx.where(x[:, :1] > 0, 1.0, -1.0)


def loss_fn(model, x, y):
    return nn.losses.hinge_loss(model(x), y, reduction="mean")


data = list(zip(x, y, strict=True))
run = elasticd.Run(model=model, optimizer=optim.Adam(2e-3), loss=loss_fn, data=data)
for step in run:
    pass
