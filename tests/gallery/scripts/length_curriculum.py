"""A curriculum: sequences grow with the step, so a compiled step meets new shapes."""

from functools import partial

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd

LENGTHS = ((0, 4), (8, 8), (16, 12))

text = mx.random.randint(0, 20, (96, 13))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 16)
        self.block = nn.TransformerEncoderLayer(16, 2, 32, norm_first=True)
        self.rope = nn.RoPE(16)

    def __call__(self, x):
        mask = nn.MultiHeadAttention.create_additive_causal_mask(x.shape[1])
        h = self.rope(self.embed(x))
        return self.embed.as_linear(self.block(h, mask))


model = Net()
optimizer = optim.AdamW(3e-3, weight_decay=0.1)


def loss_fn(model, x, y):
    return nn.losses.cross_entropy(model(x), y, reduction="mean")


@partial(mx.compile, inputs=[model.state, mx.random.state], outputs=[model.state, mx.random.state])
def compute(x, y):
    return nn.value_and_grad(model, loss_fn)(model, x, y)


def length_at(number):
    return max(length for first, length in LENGTHS if number > first)


run = elasticd.Run(model=model, optimizer=optimizer, data=text)
for step in run.steps():
    length = length_at(step.number)
    for tokens in step.micro_batches():
        loss, gradients = compute(tokens[:, :length], tokens[:, 1 : length + 1])
        mx.eval(loss, gradients)
        step.accumulate(loss, gradients)
    step.apply(optimizer)
    run.log(length=length)
