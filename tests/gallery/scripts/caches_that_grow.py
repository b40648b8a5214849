"""Masks and positions are cached for the longest batch so far, in training and in validation."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np

import elasticd


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.attention = nn.MultiHeadAttention(width, 2)
        self.norm = nn.LayerNorm(width)
        self._mask = None

    def __call__(self, x):
        length = x.shape[1]
        if self._mask is None or self._mask.shape[0] < length:
            self._mask = nn.MultiHeadAttention.create_additive_causal_mask(length)
        y = self.norm(x)
        return x + self.attention(y, y, y, mask=self._mask[:length, :length])


class Model(nn.Module):
    def __init__(self, words=24, width=16):
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.block, self.head = Block(width), nn.Linear(width, words)
        self._positions = mx.zeros((4, width))
        self._logits_scale = None

    def scale(self):
        if self.training:
            return self.head.weight.square().mean()
        if self._logits_scale is None:
            self._logits_scale = self.head.weight.square().mean()
        return self._logits_scale

    def __call__(self, x):
        length, width = x.shape[1], self._positions.shape[1]
        if len(self._positions) < length:
            angles = mx.arange(length)[:, None] / (1 + mx.arange(width // 2))
            self._positions = mx.concatenate([mx.sin(angles), mx.cos(angles)], axis=1)
        x = self.block(self.embedding(x) + self._positions[:length])
        return self.head(x) / (1 + self.scale())


rng = np.random.default_rng(2)
data = [rng.integers(1, 24, rng.integers(5, 40)) for _ in range(80)]
held_out = mx.array(rng.integers(1, 24, (4, 64)))


def padded(rows):
    longest = max(map(len, rows))
    return mx.array(np.stack([np.pad(row, (0, longest - len(row))) for row in rows]))


def loss_fn(model, x):
    return nn.losses.cross_entropy(model(x[:, :-1]), x[:, 1:], reduction="mean")


model = Model()
run = elasticd.Run(model=model, optimizer=optim.Adam(3e-3), loss=loss_fn, data=data, collate=padded)
print("before", run.evaluate(lambda: loss_fn(model, held_out).item()))
for step in run:
    if run.is_main and step.number % 5 == 0:
        print(step.number, run.evaluate(lambda: loss_fn(model, held_out).item()))
