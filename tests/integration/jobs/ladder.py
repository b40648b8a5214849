"""A script that gets into trouble on purpose, in one of several ways, at a given step.

No batch statistics, no random numbers: its loss does not depend on how the batch is cut.
"""

import argparse
import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np
from common import CLASSES, HIDDEN, INPUTS, SAMPLES, Ledger, Samples, counts  # type: ignore[import-not-found]
from mlx.utils import tree_map

import elasticd
from elasticd.train.steps import streams
from elasticd.train.steps.data import stack

parser = argparse.ArgumentParser()
parser.add_argument("--pace-seconds", type=float, default=0.002)
parser.add_argument(
    "--trouble",
    default="",
    help="poison | killed | killed-here | stuck | nan | nan-once | drift | flip | chip | gpu",
)
parser.add_argument("--at", type=int, default=20)
parser.add_argument("--folder", type=Path, help="where processes tell one another what was done")
parser.add_argument("--sample-bytes", type=int, default=0, help="taken for each sample of a grain")
parser.add_argument("--node", default="", help="where hardware kills, or computes otherwise")
parser.add_argument("--compile-seconds", type=float, default=0.0, help="of a process's first grain")
options = parser.parse_args()
two: Any = None


def once() -> bool:
    """True for the first process that asks."""
    try:
        os.close(os.open(options.folder / options.trouble, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def flipped(array: mx.array) -> mx.array:
    """One bit of one number is wrong."""
    bits = array.flatten().view(mx.uint32)
    bits[0] = bits[0] ^ 1
    return bits.view(array.dtype).reshape(array.shape)


class TwoStreams(streams.Streams):
    """As if what is not made on the CPU were made on a GPU."""

    apart, is_cpu = True, False

    @contextlib.contextmanager
    def cpu(self) -> Iterator[None]:
        self.is_cpu = True
        try:
            yield
        finally:
            self.is_cpu = False


class OfChip(optim.AdamW):
    """Where that is another chip an update's last bit is another one; or if its GPU makes it."""

    def apply_single(self, gradient: mx.array, parameter: mx.array, state: Any) -> mx.array:
        updated = super().apply_single(gradient, parameter, state)
        odd = options.trouble == "chip" or (options.trouble == "gpu" and not two.is_cpu)
        return flipped(updated) if odd and options.node in Path.cwd().parts else updated


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = [nn.Sequential(nn.Linear(INPUTS, HIDDEN), nn.Linear(HIDDEN, CLASSES))]
        self.used = mx.zeros((SAMPLES,))
        self.freeze(recurse=False, keys=["used"])

    def __call__(self, batch: dict[str, mx.array]) -> mx.array:
        index = batch["index"]
        self.used = self.used + counts(index) / len(index)
        x = batch["x"]
        for block in self.blocks:
            x = block(x)
        return x


def loss(model: Net, batch: dict[str, mx.array]) -> mx.array:
    each = nn.losses.cross_entropy(model(batch), batch["y"])
    return (each * batch["factor"]).mean()


class Data(Samples):  # type: ignore[misc]
    step: Any = None

    def __getitem__(self, index: int) -> dict[str, Any]:
        there = self.step is not None and self.step.number == options.at
        factor = 1.0
        match options.trouble:
            case "poison" if there and index % 3 == 0:
                os.abort()
            case "killed" if there:
                os.kill(os.getpid(), signal.SIGKILL)
            case "killed-here" if there and options.node in Path.cwd().parts:
                os.kill(os.getpid(), signal.SIGKILL)
            case "stuck" if there and once():
                while True:
                    time.sleep(60)
            case "nan" if there:
                factor = float("nan")
            case "nan-once" if there and once():
                factor = float("nan")
        return {**super().__getitem__(index), "factor": factor}


def collate(samples: list[Any]) -> Any:
    room = np.ones(len(samples) * options.sample_bytes, np.uint8)
    batch = stack(samples)
    del room
    return batch


if options.trouble == "gpu":
    streams.HERE = two = TwoStreams()
model, data = Net(), Data(options.pace_seconds)
rate = optim.cosine_decay(1e-2, 40)  # so that a step too many or too few shows
run = elasticd.Run(model=model, data=data, optimizer=OfChip(rate), collate=collate)
loss_and_grad = nn.value_and_grad(model, loss)
ledger = Ledger(run)
here = run.output_dir.parts
for step in run.steps():
    data.step = step
    for batch in step.micro_batches():
        time.sleep(options.compile_seconds)
        options.compile_seconds = 0.0
        value, gradients = loss_and_grad(model, batch)
        if options.trouble == "flip" and step.number >= options.at and options.node in here:
            gradients = tree_map(flipped, gradients)
        step.accumulate(value, gradients)
    step.apply()
    if not step.late:
        ledger.write(step, model.used)
    if options.trouble == "drift" and step.number == options.at and run.rank == 1 and once():
        model.blocks[0].layers[1].bias = model.blocks[0].layers[1].bias + 1e-3
print("digest", run.digest(), flush=True)
