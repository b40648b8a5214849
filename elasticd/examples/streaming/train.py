"""A small recurrent network that learns text from a stream of JSON lines.

The rows are read from three files as they are needed, shuffled in blocks, and read ahead on a
thread. Put your own files into the folder ``data``, ``*.jsonl`` or ``*.jsonl.gz``, as many and as
large as you like: no more than a block of rows is in memory, and a process that joins the job goes
on at the row where the others are.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np
import numpy.typing as npt

import elasticd
from elasticd import data

VOCABULARY = 256
LENGTH = 64  # bytes of a row; longer ones are cut off
WIDTH = 64
BLOCK = 64  # rows that are shuffled together
AHEAD = 64  # rows that are read ahead
DROPPED = 0.02  # of bytes that the network has to do without
PRINT_EVERY = 10


def encode(row: dict[str, Any]) -> npt.NDArray[np.uint8]:
    """The bytes of a row, which 0 ends and pads: uint8[LENGTH + 1]."""
    raw = row["text"].encode()[:LENGTH]
    return np.frombuffer(raw.ljust(LENGTH + 1, b"\0"), np.uint8)


def drop(text: npt.NDArray[np.uint8]) -> dict[str, npt.NDArray[np.uint8]]:
    """What is shown and what is predicted. It draws random numbers, so it is last in the stream."""
    kept = np.random.random(LENGTH) >= DROPPED
    return {"shown": np.where(kept, text[:-1], 0).astype(np.uint8), "next": text[1:]}


def rows(folder: Path) -> data.SampleStream:
    files = data.JsonLines(folder / "*.jsonl", folder / "*.jsonl.gz")
    return files.stream().map(encode).shuffle(BLOCK, seed=1).prefetch(AHEAD).map(drop)


class TextNet(nn.Module):
    """Bytes to logits of the next byte, by one recurrent layer.

    A lookup is a product with one-hot rows, as the gradient of a gather has no order on a GPU.
    """

    def __init__(self) -> None:
        super().__init__()
        self.embedding = mx.random.normal((VOCABULARY, WIDTH), scale=0.1)
        self.memory = nn.GRU(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def __call__(self, text: mx.array) -> mx.array:
        return self.head(self.memory(one_hot(text) @ self.embedding))


def one_hot(text: mx.array) -> mx.array:
    return (text[..., None] == mx.arange(VOCABULARY, dtype=mx.uint8)).astype(mx.float32)


def loss_fn(model: TextNet, batch: dict[str, mx.array]) -> elasticd.Weighted:
    """Nats per byte, over what isn't padding: rows weigh as much as they have bytes."""
    shown, following = batch["shown"], batch["next"]
    logits = model(shown)
    first = mx.ones((len(following), 1), mx.bool_)
    counts = mx.concatenate([first, following[:, :-1] != 0], axis=1).astype(mx.float32)
    of_target = (logits * one_hot(following)).sum(axis=-1)
    nats = ((mx.logsumexp(logits, axis=-1) - of_target) * counts).sum()
    return elasticd.Weighted(nats / counts.sum(), counts.sum())


def main() -> None:
    run = elasticd.Run(
        model=TextNet(),
        optimizer=optim.Adam(learning_rate=5e-3),
        loss=loss_fn,
        data=rows(Path(__file__).parent / "data"),
        clip_norm=1.0,
    )
    for step in run:
        if run.is_main and step.number % PRINT_EVERY == 0:
            bits = step.loss / math.log(2)
            print(f"step {step.number}, epoch {step.epoch}: {bits:.3f} bits per byte", flush=True)


if __name__ == "__main__":
    main()
