"""A custom optimizer (Adan) that keeps everything in its state, as MLX's own do."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd


class Adan(optim.Optimizer):
    def __init__(self, learning_rate, betas=(0.02, 0.08, 0.01), eps=1e-8):
        super().__init__()
        self._maybe_schedule("learning_rate", learning_rate)
        self.betas, self.eps = betas, eps

    def init_single(self, parameter, state):
        for name in ("m", "v", "n", "previous"):
            state[name] = mx.zeros_like(parameter)

    def apply_single(self, gradient, parameter, state):
        b1, b2, b3 = self.betas
        difference = gradient - state["previous"]
        state["m"] = (1 - b1) * state["m"] + b1 * gradient
        state["v"] = (1 - b2) * state["v"] + b2 * difference
        total = gradient + (1 - b2) * difference
        state["n"] = (1 - b3) * state["n"] + b3 * total.square()
        state["previous"] = gradient
        rate = self.learning_rate.astype(gradient.dtype) / (mx.sqrt(state["n"]) + self.eps)
        return parameter - rate * (state["m"] + (1 - b2) * state["v"])


model = nn.Sequential(nn.Linear(3, 12), nn.ReLU(), nn.Linear(12, 3))
data = mx.random.normal((70, 3))


def loss_fn(model, x):
    return nn.losses.mse_loss(model(x), mx.cos(x))


optimizer = Adan(optim.cosine_decay(5e-3, 30))
run = elasticd.Run(model=model, optimizer=optimizer, loss=loss_fn, data=data, clip_norm=1.0)
for step in run:
    pass
