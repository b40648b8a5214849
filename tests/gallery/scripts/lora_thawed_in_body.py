"""LoRA layers stand ready, frozen, and are trained alone once the base has converged a little."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd


class LoRALinear(nn.Module):
    def __init__(self, linear, rank=2):
        super().__init__()
        out, inp = linear.weight.shape
        self.linear = linear
        self.lora_a = mx.random.normal((inp, rank)) * 0.1
        self.lora_b = mx.zeros((rank, out))

    def __call__(self, x):
        return self.linear(x) + (x @ self.lora_a) @ self.lora_b


def loss_fn(model, x, y):
    return nn.losses.mse_loss(model(x), y)


x = mx.random.normal((80, 6))
data = [(row, row[:2] * 0.5) for row in x]
model = nn.Sequential(LoRALinear(nn.Linear(6, 10)), nn.ReLU(), LoRALinear(nn.Linear(10, 2)))
ADAPTERS = ["lora_a", "lora_b"]
model.freeze(keys=ADAPTERS)
run = elasticd.Run(model=model, optimizer=optim.SGD(0.05), loss=loss_fn, data=data)
for step in run:
    if step.number == 8:
        model.freeze()
        model.unfreeze(keys=ADAPTERS)
    if run.is_main:
        print(step.number, step.loss)
