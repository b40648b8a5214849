"""QLoRA: a quantised base whose integer weights stay, with low-rank layers beside it."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd


class LoRALinear(nn.Module):
    def __init__(self, linear, input_dims, output_dims, rank=4):
        super().__init__()
        self.linear = linear
        self.lora_a = mx.random.uniform(-0.1, 0.1, (input_dims, rank))
        self.lora_b = mx.zeros((rank, output_dims))

    def __call__(self, x):
        return self.linear(x) + 2.0 * ((x @ self.lora_a) @ self.lora_b)


class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(64, 64), nn.Linear(64, 64)

    def __call__(self, x):
        return self.down(nn.relu(self.up(x)))


model = Base()
nn.quantize(model, group_size=64, bits=4)
model.freeze()
model.up = LoRALinear(model.up, 64, 64)
model.down = LoRALinear(model.down, 64, 64)
x = mx.random.normal((64, 64))
data = list(zip(x, x[:, ::-1] * 0.5, strict=True))


def loss_fn(model, x, y):
    return nn.losses.mse_loss(model(x), y)


run = elasticd.Run(model=model, optimizer=optim.AdamW(1e-3), loss=loss_fn, data=data)
for step in run:
    if run.is_main:
        print(f"Iter {step.number}: {step.loss:.4f}")
