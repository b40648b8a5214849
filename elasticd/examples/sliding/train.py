"""A small transformer with sliding-window attention, which learns to repeat what it saw before.

Each layer lets a token see the WINDOW tokens up to itself. What lies further back comes through the
layers below, if it is of use: two layers with a window of 16 reach 30 tokens back.
"""

from __future__ import annotations

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np
import numpy.typing as npt

import elasticd

SYMBOLS = 16
LENGTH = 40  # tokens of a sequence
PERIOD = 10  # it repeats itself after so many
WINDOW = 16  # a layer sees so many tokens, the last its own
LAYERS = 2
WIDTH, HEADS = 32, 2
PRINT_EVERY = 25


class Repeats:
    """Sequences that repeat themselves, each a function of its number: uint8[LENGTH + 1]."""

    def __len__(self) -> int:
        return 4096

    def __getitem__(self, number: int) -> npt.NDArray[np.uint8]:
        period = np.random.default_rng(number).integers(0, SYMBOLS, PERIOD, np.uint8)
        return np.resize(period, LENGTH + 1)


class WindowedBlock(nn.Module):
    """Attention within a window, then two layers for each token by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.to_heads = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.from_heads = nn.Linear(WIDTH, WIDTH, bias=False)
        self.rope = nn.RoPE(WIDTH // HEADS)
        self.first_norm, self.second_norm = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def __call__(self, x: mx.array, mask: mx.array) -> mx.array:
        x = x + self.attend(self.first_norm(x), mask)
        return x + self.narrow(nn.gelu(self.wide(self.second_norm(x))))

    def attend(self, x: mx.array, mask: mx.array) -> mx.array:
        size, length, _ = x.shape
        queries, keys, values = (
            part.reshape(size, length, HEADS, -1).transpose(0, 2, 1, 3)
            for part in mx.split(self.to_heads(x), 3, axis=-1)
        )
        seen = mx.fast.scaled_dot_product_attention(
            self.rope(queries), self.rope(keys), values, scale=(WIDTH // HEADS) ** -0.5, mask=mask
        )
        return self.from_heads(seen.transpose(0, 2, 1, 3).reshape(size, length, WIDTH))


class SlidingNet(nn.Module):
    """Symbols to logits of the next symbol.

    A lookup is a product with one-hot rows, as the gradient of a gather has no order on a GPU.
    """

    def __init__(self) -> None:
        super().__init__()
        self.embedding = mx.random.normal((SYMBOLS, WIDTH), scale=0.1)
        self.blocks = [WindowedBlock() for _ in range(LAYERS)]
        self.norm, self.head = nn.RMSNorm(WIDTH), nn.Linear(WIDTH, SYMBOLS)

    def __call__(self, symbols: mx.array) -> mx.array:
        x, mask = one_hot(symbols) @ self.embedding, window(symbols.shape[1])
        for block in self.blocks:
            x = block(x, mask)
        return self.head(self.norm(x))


def window(length: int) -> mx.array:
    """Which token sees which: bool[length, length]."""
    at = mx.arange(length)
    back = at[:, None] - at[None]
    return (back >= 0) & (back < WINDOW)


def one_hot(symbols: mx.array) -> mx.array:
    return (symbols[..., None] == mx.arange(SYMBOLS, dtype=mx.uint8)).astype(mx.float32)


def loss_fn(model: SlidingNet, batch: mx.array) -> elasticd.Weighted:
    """Nats per symbol, of those that have been there before."""
    logits, wanted = model(batch[:, :-1]), batch[:, 1:]
    logits, wanted = logits[:, PERIOD:], wanted[:, PERIOD:]
    of_target = (logits * one_hot(wanted)).sum(axis=-1)
    nats = mx.logsumexp(logits, axis=-1) - of_target
    right = (logits.argmax(axis=-1) == wanted).mean()
    return elasticd.Weighted(nats.mean(), mx.array(nats.size), {"right": right})


def main() -> None:
    run = elasticd.Run(
        model=SlidingNet(),
        optimizer=optim.AdamW(learning_rate=3e-3),
        loss=loss_fn,
        data=Repeats(),
        clip_norm=1.0,
    )
    for step in run:
        if run.is_main and step.number % PRINT_EVERY == 0:
            right = step.metrics["right"]
            print(f"step {step.number}: loss {step.loss:.3f}, {right:.0%} right", flush=True)


if __name__ == "__main__":
    main()
