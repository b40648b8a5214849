"""Activations are computed again in the backward pass: nn.utils.checkpoint as in mlx-lm."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd


class Layer(nn.Module):
    def __init__(self, dims):
        super().__init__()
        self.up, self.down = nn.Linear(dims, 2 * dims), nn.Linear(2 * dims, dims)
        self.norm = nn.RMSNorm(dims)

    def __call__(self, x):
        return x + self.down(nn.silu(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = [Layer(10) for _ in range(3)]
        self.head = nn.Linear(10, 1)

    def __call__(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def grad_checkpoint(layer):
    """Update all instances of type(layer) to use gradient checkpointing."""
    fn = type(layer).__call__

    def checkpointed_fn(model, *args):
        def inner_fn(params, *args):
            model.update(params)
            return fn(model, *args)

        return mx.checkpoint(inner_fn)(model.trainable_parameters(), *args)

    type(layer).__call__ = checkpointed_fn


model = Net()
grad_checkpoint(model.layers[0])
x = mx.random.normal((72, 10))
data = [{"input": row, "target": row.mean(keepdims=True)} for row in x]


def loss_fn(model, batch):
    return ((model(batch["input"]) - batch["target"]) ** 2).mean()


run = elasticd.Run(model=model, optimizer=optim.AdamW(1e-3), loss=loss_fn, data=data)
for step in run:
    pass
