"""A custom optimizer that counts its steps in a Python attribute."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd


class Lookahead(optim.Optimizer):
    """SGD that pulls back to slow weights every few steps."""

    def __init__(self, learning_rate, every=5, alpha=0.5):
        super().__init__()
        self.learning_rate = learning_rate
        self.every, self.alpha = every, alpha
        self.t = 0

    def init_single(self, parameter, state):
        state["slow"] = mx.array(parameter)

    def apply_gradients(self, gradients, parameters):
        self.t += 1
        return super().apply_gradients(gradients, parameters)

    def apply_single(self, gradient, parameter, state):
        fast = parameter - self.learning_rate.astype(gradient.dtype) * gradient
        if self.t % self.every:
            return fast
        state["slow"] = state["slow"] + self.alpha * (fast - state["slow"])
        return state["slow"]


model = nn.Sequential(nn.Linear(4, 10), nn.ReLU(), nn.Linear(10, 2))
x = mx.random.normal((80, 4))
data = list(zip(x, x[:, :2] * x[:, 2:], strict=True))


def loss_fn(model, x, y):
    return nn.losses.mse_loss(model(x), y)


run = elasticd.Run(model=model, optimizer=Lookahead(0.05), loss=loss_fn, data=data)
for step in run:
    pass
