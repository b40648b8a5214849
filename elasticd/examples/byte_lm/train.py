"""A byte-level transformer that learns the Python sources shipped with this interpreter.

Megabytes of real text that every machine has, so nothing is downloaded. Small enough that three
trainers on two shared CPU cores finish a step of 64 samples in under half a second; 200 steps
bring 8 bits per byte down to about 3.

Every operation has one order of additions, on a GPU too: lookups are products with one-hot rows,
because the gradient of a gather is a scatter, and Metal's scatter adds in whatever order its
threads arrive.
"""

from __future__ import annotations

import hashlib
import math
import os
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np
import numpy.typing as npt

import elasticd

VOCABULARY = 256
CONTEXT = 64  # bytes that one prediction may look back on
WIDTH = 48
HEADS = 3
LAYERS = 2
DROPOUT = 0.05

PEAK_RATE = 6e-3
WARMUP_STEPS = 20
DECAY_STEPS = 180

PRINT_EVERY = 10
HELD_OUT_SHARE = 16  # one file in so many is kept for validation
HELD_OUT_WINDOWS = 128
EVALUATION_BATCH = 32

# Packages that distributors patch, split off or leave out: the same interpreter may differ there.
NOT_EVERYWHERE = frozenset(
    {"__pycache__", "distutils", "ensurepip", "idlelib", "lib2to3", "pydoc_data", "test", "tests"}
    | {"tkinter", "turtledemo"}
)


def python_sources(root: Path) -> Iterator[bytes]:
    """The contents of the ``*.py`` files below ``root``, sorted by relative path.

    Skips what is not the same on every host: installed packages, generated build settings, links.
    """
    found: list[tuple[str, Path]] = []
    for folder, folders, files in os.walk(root):
        folders[:] = [f for f in folders if f.isidentifier() and f not in NOT_EVERYWHERE]
        for name in files:
            path = Path(folder, name)
            if name.endswith(".py") and not name.startswith("_sysconfigdata") and path.is_file():
                found.append((path.relative_to(root).as_posix(), path))
    for _, path in sorted(found):
        if not path.is_symlink():
            yield path.read_bytes()


def split_sources(sources: Iterator[bytes]) -> tuple[bytes, bytes]:
    """``(training, held out)``: a file's content alone decides its side; copies stay together."""
    sides: tuple[list[bytes], list[bytes]] = ([], [])
    for text in sources:
        digest = hashlib.blake2b(text, digest_size=8).digest()
        sides[int.from_bytes(digest, "big") % HELD_OUT_SHARE == 0].append(text)
    return b"".join(sides[0]), b"".join(sides[1])


class Windows:
    """A text cut into samples uint8[CONTEXT + 1], in which each byte but the first is predicted.

    Neighbours share one byte, so that every byte of the text is predicted once an epoch.
    """

    def __init__(self, text: bytes) -> None:
        self._bytes = np.frombuffer(text, dtype=np.uint8)

    def __len__(self) -> int:
        return max(0, (len(self._bytes) - 1) // CONTEXT)

    def __getitem__(self, index: int) -> npt.NDArray[np.uint8]:
        if not 0 <= index < len(self):
            raise IndexError(index)
        start = index * CONTEXT
        return self._bytes[start : start + CONTEXT + 1]


class Block(nn.Module):
    """Causal self-attention and a feed-forward layer, each behind its own norm."""

    def __init__(self) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(WIDTH)
        self.query_key_value = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.mix = nn.Linear(WIDTH, WIDTH, bias=False)
        self.forward_norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)
        self.dropout = nn.Dropout(DROPOUT)

    def __call__(self, x: mx.array) -> mx.array:
        x = x + self.dropout(self.attend(self.attention_norm(x)))
        # A squared ReLU, written out: nn's activations are compiled, on Linux by a C++ compiler.
        hidden = mx.square(mx.maximum(self.up(self.forward_norm(x)), 0.0))
        return x + self.dropout(self.down(hidden))

    def attend(self, x: mx.array) -> mx.array:
        batch, length, _ = x.shape
        heads = self.query_key_value(x).reshape(batch, length, 3, HEADS, -1)
        query, key, value = heads.transpose(2, 0, 3, 1, 4)
        scale = 1 / math.sqrt(WIDTH // HEADS)
        mixed = mx.fast.scaled_dot_product_attention(query, key, value, scale=scale, mask="causal")
        return self.mix(mixed.transpose(0, 2, 1, 3).reshape(batch, length, WIDTH))


class ByteLM(nn.Module):
    """A small GPT over bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = mx.random.normal((VOCABULARY, WIDTH), scale=0.02)
        self.position = mx.random.normal((CONTEXT, WIDTH), scale=0.02)
        self.blocks = [Block() for _ in range(LAYERS)]
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def __call__(self, one_hot: mx.array) -> mx.array:
        """One-hot bytes float32[batch, length, 256] to logits of the next byte, same shape."""
        x = one_hot @ self.embedding + self.position[: one_hot.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def loss_fn(model: ByteLM, batch: mx.array) -> mx.array:
    """Mean cross-entropy, in nats per byte, of windows uint8[batch, CONTEXT + 1]."""
    one_hot = (batch[..., None] == mx.arange(VOCABULARY, dtype=mx.uint8)).astype(mx.float32)
    logits = model(one_hot[:, :-1])
    of_target = (logits * one_hot[:, 1:]).sum(axis=-1)
    return (mx.logsumexp(logits, axis=-1) - of_target).mean()


def bits_per_byte(model: ByteLM, windows: Windows) -> float:
    """Bits per byte over windows spread evenly through ``windows``; the model is in eval mode."""
    count = min(HELD_OUT_WINDOWS, len(windows))
    chosen = [i * len(windows) // count for i in range(count)]
    nats = 0.0
    for start in range(0, count, EVALUATION_BATCH):
        indices = chosen[start : start + EVALUATION_BATCH]
        batch = mx.array(np.stack([windows[index] for index in indices]))
        nats += float(loss_fn(model, batch)) * len(indices)
    return nats / count / math.log(2)


def learning_rate() -> Callable[[mx.array], mx.array]:
    """Linear warm-up, then a cosine down to a tenth of the peak, where it stays."""
    warmup = optim.linear_schedule(PEAK_RATE / WARMUP_STEPS, PEAK_RATE, WARMUP_STEPS)
    decay = optim.cosine_decay(PEAK_RATE, DECAY_STEPS, PEAK_RATE / 10)
    return optim.join_schedules([warmup, decay], [WARMUP_STEPS])


def make_optimizer() -> optim.Optimizer:
    return optim.AdamW(learning_rate=learning_rate(), betas=[0.9, 0.99], weight_decay=0.01)


def main() -> None:
    root = Path(sysconfig.get_path("stdlib"))
    training, held_out = (Windows(text) for text in split_sources(python_sources(root)))
    if not len(training) or not len(held_out):
        sys.exit(f"byte_lm: no Python sources to learn from in {root}")

    model = ByteLM()
    run = elasticd.Run(
        model=model, optimizer=make_optimizer(), loss=loss_fn, data=training, clip_norm=1.0
    )
    for step in run:
        if run.is_main and step.number % PRINT_EVERY == 0:
            bits = float(step.loss) / math.log(2)
            print(f"step {step.number}: {bits:.3f} bits per byte", flush=True)

    if run.is_main:
        bits = run.evaluate(lambda: bits_per_byte(model, held_out))
        run.log(held_out_bits_per_byte=bits)
        print(f"held out: {bits:.3f} bits per byte", flush=True)


if __name__ == "__main__":
    main()
