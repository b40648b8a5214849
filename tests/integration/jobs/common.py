"""What the test jobs share: generated samples, a pace, and the ledger.

The ledger goes through the reduction itself. Each sample adds one to its own element of a vector
that the members sum as they sum gradients, so what a script writes down is which samples are in
the reduction that it applied, whatever the members did before.
"""

from __future__ import annotations

import argparse
import atexit
import errno
import json
import math
import os
import time
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

GLOBAL = 16  # a power of two, so that counts divided by it are exact
SAMPLES = 96
SLICE_SECONDS = 0.005
INPUTS, HIDDEN, CLASSES = 12, 32, 4


class Samples:
    """``{"x": float32[12], "y": class, "index": int}``; fetching one takes a given time.

    It takes none once there is a file for this job beside the nodes' homes. None can be fetched
    while there is a file ``unmounted`` in the node's home.
    """

    def __init__(self, pace_seconds: float) -> None:
        self._pace_seconds = pace_seconds
        self._home = Path.cwd() / "../../.."
        self._hurry = hurry_file()
        self._x = np.random.default_rng(5).normal(size=(SAMPLES, INPUTS)).astype(np.float32)

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> dict[str, Any]:
        if self._pace_seconds and self._hurry.exists():
            self._pace_seconds = 0.0
        if (self._home / "unmounted").exists():
            raise FileNotFoundError(f"{self._home.resolve()}/data is not mounted")
        work(self._pace_seconds)
        x = self._x[index]
        return {"x": x, "y": int(np.abs(x[:CLASSES]).argmax()), "index": index}


def hurry_file() -> Path:
    """Beside the nodes' homes: once it is there this job keeps no pace any more."""
    folder = Path.cwd()  # HOME/node-0/clones/JOB/0
    return folder / "../../../.." / f"hurry-{folder.parent.name}"


def work(seconds: float) -> None:
    """Sleep for so long in slices: who is stopped now and then takes longer for it, as for work.
    One long sleep goes on while its process is stopped."""
    slices = math.ceil(seconds / SLICE_SECONDS)
    for _ in range(slices):
        time.sleep(seconds / slices)


def counts(indices: mx.array) -> mx.array:
    """How often each sample occurs in a micro-batch: float32[SAMPLES]."""
    return (indices[:, None] == mx.arange(SAMPLES)[None]).sum(0).astype(mx.float32)


class Ledger:
    """One line a step in a file of the node's home, by one process.

    Not in the output folder: there main's copy of a file takes the place of an idle node's own.

    A line that finds the disk full goes with a later one, at the latest when the script ends: the
    tests free the disk again. A script that raised would end the job, and one that waited here
    would keep its daemon from writing anything, and so from seeing that the disk is full.
    """

    def __init__(self, run: Any) -> None:
        self._run = run
        clone = Path.cwd()  # HOME/node-0/clones/JOB/0
        folder = clone / "../../.." / "ledgers" / clone.parent.name
        folder.mkdir(parents=True, exist_ok=True)
        self._file = (folder / f"{os.getpid()}.jsonl").open("ab", buffering=0)
        self._left = b""
        atexit.register(self._finish)

    def write(self, step: Any, shares: mx.array) -> None:
        """``shares``: counts divided by the global batch."""
        used = (np.array(shares) * GLOBAL).tolist()
        line = {"step": step.number, "used": used, "loss": step.loss, "rank": self._run.rank}
        self._left += json.dumps(line).encode() + b"\n"
        self._write()
        print(f"step {step.number} loss {step.loss:.4f}", flush=True)

    def _write(self) -> None:
        try:
            while self._left:
                self._left = self._left[self._file.write(self._left) :]
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise

    def _finish(self) -> None:
        self._write()
        while self._left:
            time.sleep(0.05)
            self._write()


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pace-seconds", type=float, default=0.002)
    return parser.parse_args()
