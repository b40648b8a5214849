"""LoRA layers replace a frozen model's before Run is called."""

import math

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
from mlx.utils import tree_flatten

import elasticd


class LoRALinear(nn.Module):
    @staticmethod
    def from_linear(linear, rank=4):
        out, inp = linear.weight.shape
        lora = LoRALinear(inp, out, rank)
        lora.linear = linear
        return lora

    def __init__(self, input_dims, output_dims, rank, scale=10.0):
        super().__init__()
        self.linear = nn.Linear(input_dims, output_dims)
        self.scale = scale
        bound = 1 / math.sqrt(input_dims)
        self.lora_a = mx.random.uniform(-bound, bound, (input_dims, rank))
        self.lora_b = mx.zeros((rank, output_dims))
        self.dropout = nn.Dropout(0.05)

    def __call__(self, x):
        y = self.linear(x)
        return y + self.scale * ((self.dropout(x) @ self.lora_a) @ self.lora_b)


class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(24, 12)
        self.layers = [nn.Linear(12, 12) for _ in range(3)]
        self.lm_head = nn.Linear(12, 24)

    def __call__(self, x):
        x = self.embed(x)
        for layer in self.layers:
            x = x + nn.silu(layer(x))
        return self.lm_head(x)


def loss_fn(model, inputs, targets):
    return nn.losses.cross_entropy(model(inputs), targets).mean()


model = Base()
model.freeze()
model.layers = [LoRALinear.from_linear(layer) for layer in model.layers]
trainable = sum(v.size for _, v in tree_flatten(model.trainable_parameters()))
print(f"Trainable parameters: {trainable}")

tokens = mx.random.randint(0, 24, (60, 7))
data = [(row[:-1], row[1:]) for row in tokens]
run = elasticd.Run(model=model, optimizer=optim.Adam(1e-3), loss=loss_fn, data=data)
for step in run:
    if run.is_main and step.number % 8 == 0:
        print(f"Iter {step.number}: Train loss {step.loss:.3f}")
