"""Seconds from a rank's SIGKILL to all ranks behind ``mx.distributed.init()`` again, in a plain job
of three nodes on this machine; and how much of that is the script's own start.

A script writes when it begins, when it calls ``init`` and when that has returned. Its own start is
from the first to the second, of the slowest rank: Python's imports. What is left is elasticd's:
seeing the death, ending the others, forming a world, starting Python, and MLX's ring.

    python tests/benchmarks/bench_plain.py [--samples 10]

Nothing is asserted; the exit code is 0 when it measured.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

sys.path.insert(0, str(Path(__file__).parents[2]))

from elasticd.cli import local, submit
from elasticd.client.client import Client

T = TypeVar("T")
NODES = 3
WAIT_SECONDS = 60.0
POLL_SECONDS = 0.01
SETTLE_SECONDS = 5.0
"""Spares are warm by then; and a random part of a second more."""
SCRIPT = """\
import json, os, sys, time
began = time.monotonic()
import mlx.core as mx
asked = time.monotonic()
world = mx.distributed.init(strict=True)
told = {"began": began, "asked": asked, "there": time.monotonic(), "pid": os.getpid(),
        "time": int(os.environ["ELASTICD_RESTARTS"])}
with open(f"{sys.argv[1]}/{told['time']}-{world.rank()}", "w") as file:
    json.dump(told, file)
os.rename(file.name, f"{file.name}.json")
while True:
    mx.eval(mx.distributed.all_sum(mx.array(1.0)))
    time.sleep(0.05)
"""


def write_job(folder: Path, told: Path) -> Path:
    """A job whose ranks write to ``told``."""
    folder.mkdir()
    told.mkdir()
    (folder / "train.py").write_text(SCRIPT)
    (folder / "job.toml").write_text(
        f'[job]\nname = "plain"\nmode = "plain"\nentrypoint = "train.py"\nargs = ["{told}"]\n'
        f"[world]\nmin = {NODES}\n[plain]\nrestarts = 1000000\n"
    )
    return folder / "job.toml"


def wait_for(what: str, look: Callable[[], T | None]) -> T:
    """What ``look`` finds."""
    deadline = time.monotonic() + WAIT_SECONDS
    while (found := look()) is None:
        if time.monotonic() > deadline:
            raise SystemExit(f"{what}: not within {WAIT_SECONDS:.0f} s")
        time.sleep(POLL_SECONDS)
    return found


def ranks_since(told: Path, moment: float) -> list[dict[str, Any]] | None:
    """What all ranks have written of the newest start, if each began after ``moment``."""
    by_time: dict[int, list[dict[str, Any]]] = {}
    for path in told.glob("*.json"):
        one = json.loads(path.read_text())
        by_time.setdefault(one["time"], []).append(one)
    newest = by_time[max(by_time)] if by_time else []
    whole = len(newest) == NODES and all(one["began"] > moment for one in newest)
    return newest if whole else None


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--samples", type=int, default=10)
    options = parser.parse_args()
    dice = random.Random(0)
    total, own = [], []
    with tempfile.TemporaryDirectory(prefix="elasticd-bench-") as name:
        home, told = Path(name) / "home", Path(name) / "told"
        job = write_job(Path(name) / "job", told)
        try:
            local.up(home, NODES)
            Client(home).submit(*submit.prepare(job, []))
            ranks = wait_for("all ranks in init", partial(ranks_since, told, 0.0))
            for _ in range(options.samples):
                time.sleep(SETTLE_SECONDS + dice.random())
                killed = time.monotonic()
                os.kill(dice.choice(ranks)["pid"], signal.SIGKILL)
                ranks = wait_for("all ranks again", partial(ranks_since, told, killed))
                total.append(max(one["there"] for one in ranks) - killed)
                own.append(max(one["asked"] - one["began"] for one in ranks))
                print(f"  {total[-1]:.2f} s, of which its own start {own[-1]:.2f} s", flush=True)
        finally:
            local.down(home)
    left = sorted(every - its for every, its in zip(total, own, strict=True))
    print(
        f"kill to all in init: median {statistics.median(total):.2f} s; without the script's own"
        f" start ({statistics.median(own):.2f} s) median {statistics.median(left):.2f} s, longest"
        f" {left[-1]:.2f} s, of {len(left)}; load {os.getloadavg()[0]:.1f}"
    )


if __name__ == "__main__":
    main()
