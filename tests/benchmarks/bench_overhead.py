"""CPU seconds that the high-level form takes in a world of one, over a plain MLX loop.

Two models: byte_lm as it is, and with 25 million parameters. The ways to train each are processes
that live all the time and take turns of a few steps, in an order drawn anew each round: a plain
loop, ``elasticd.Run`` alone, and the same under a daemon, without checkpoints (--daemon; what those
cost is bench_checkpoint.py's). A turn's CPU seconds are those of the whole process, all threads;
others that use the machine meanwhile make them noisy, but favour no way: the ratios' spread says
how noisy. The losses of the ways are printed: they must be nearly the same.

    python tests/benchmarks/bench_overhead.py [--rounds 20] [--model 25m] [--daemon] [--json FILE]

Nothing is asserted; the exit code is 0 when it measured.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from elasticd import examples
from elasticd.cli import local
from elasticd.cli.submit import prepare
from elasticd.client.client import Client

WAIT_SECONDS = 1200.0
TARGET = 1.03
STEPS = {"byte_lm": 2, "25m": 1}
"""Of a turn."""
JOB = """\
[job]
name = "overhead"
entrypoint = "train.py"
[batch]
global = {batch}
micro = {micro}
[train]
steps = 100000
[checkpoint]
every_steps = 100000
[recovery]
spare = "none"
verify_every = 0
"""
BATCHES = {"byte_lm": (64, 8), "25m": (4, 1)}


@dataclass
class Way:
    """All turns of one way to train, a step; ``python`` is the CPU time of the script's thread."""

    name: str
    cpu: list[float] = field(default_factory=list)
    python: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    loss: float = 0.0


class Trainer:
    """A process that trains while it has its turn."""

    def __init__(self, listener: socket.socket) -> None:
        self._socket, _ = listener.accept()
        self._socket.settimeout(WAIT_SECONDS)
        self._lines = self._socket.makefile("r")
        self.said()

    def turn(self, steps: int, way: Way | None) -> None:
        self._socket.sendall(f"{steps}\n".encode())
        said = self.said()
        if way is not None:
            for name in ("cpu", "python", "seconds"):
                getattr(way, name).append(said[name] / steps)
            way.loss = said["loss"]

    def said(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._lines.readline())
        return found

    def end(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.sendall(b"0\n")
        self._socket.close()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--model", choices=STEPS, action="append", help="default: both")
    parser.add_argument("--daemon", action="store_true", help="also measure under a daemon")
    parser.add_argument("--json", type=Path, help="also write every figure to this file")
    options = parser.parse_args()
    found = {}
    for model in options.model or STEPS:
        with tempfile.TemporaryDirectory(prefix="elasticd-bench-") as folder:
            ways = _measure(model, Path(folder), options.rounds, options.daemon)
        _print_table(model, ways)
        found[model] = [asdict(way) for way in ways]
    if options.json is not None:
        options.json.write_text(json.dumps({"load": os.getloadavg(), **found}, indent=1) + "\n")


def _measure(model: str, folder: Path, rounds: int, daemon: bool) -> list[Way]:
    job = _job(folder / "job", model)
    order = random.Random(0)
    with contextlib.ExitStack() as stack:
        starts = {"plain": _process, "alone": _process} | ({"daemon": _daemon} if daemon else {})
        trainers = {
            name: stack.enter_context(_started(start, job, name, model))
            for name, start in starts.items()
        }
        ways = {name: Way(name) for name in trainers}
        for number in range(rounds + 1):
            for name in order.sample(list(ways), len(ways)):
                trainers[name].turn(STEPS[model], ways[name] if number else None)
    return list(ways.values())


def _job(folder: Path, model: str) -> Path:
    folder.mkdir()
    example = Path(examples.__file__).parent / "byte_lm" / "train.py"
    shutil.copy(example, folder / "byte_lm.py")
    shutil.copy(Path(__file__).with_name("overhead_train.py"), folder / "train.py")
    batch, micro = BATCHES[model]
    (folder / "job.toml").write_text(JOB.format(batch=batch, micro=micro))
    return folder


@contextlib.contextmanager
def _started(start: Any, job: Path, name: str, model: str) -> Iterator[Trainer]:
    with (
        tempfile.TemporaryDirectory(prefix="elasticd-bench-") as folder,
        socket.socket(socket.AF_UNIX) as listener,
    ):
        path = f"{folder}/turns"
        listener.bind(path)
        listener.listen()
        listener.settimeout(WAIT_SECONDS)
        way = "plain" if name == "plain" else "elastic"
        words = ["--way", way, "--model", model, "--socket", path]
        with start(job, words):
            trainer = Trainer(listener)
            try:
                yield trainer
            finally:
                trainer.end()


@contextlib.contextmanager
def _process(job: Path, words: list[str]) -> Iterator[None]:
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    with subprocess.Popen([sys.executable, job / "train.py", *words], env=environment) as process:
        try:
            yield
            process.wait(WAIT_SECONDS)
        finally:
            process.kill()


@contextlib.contextmanager
def _daemon(job: Path, words: list[str]) -> Iterator[None]:
    home = job.with_name("home")
    local.up(home, 1)
    try:
        settings = [f"job.args={json.dumps(words)}"]
        Client(home).submit(*prepare(job / "job.toml", settings))
        yield
    finally:
        local.down(home)


def _print_table(model: str, ways: list[Way]) -> None:
    base = ways[0]
    print(
        f"\n{model}: a step, {len(base.cpu)} turns of {STEPS[model]}; load {os.getloadavg()[0]:.1f}"
    )
    titles = "".join(f"{title:>10}" for title in ("CPU ms", "fastest", "script ms", "ms", "loss"))
    print(f"{'':8}{titles}   CPU by plain's of its round")
    for way in ways:
        ratios = sorted(mine / other for mine, other in zip(way.cpu, base.cpu, strict=True))
        quarter = len(ratios) // 4
        cells = (
            f"{statistics.median(way.cpu) * 1e3:.1f}",
            f"{min(way.cpu) * 1e3:.1f}",
            f"{statistics.median(way.python) * 1e3:.1f}",
            f"{statistics.median(way.seconds) * 1e3:.1f}",
            f"{way.loss:.4f}",
        )
        spread = f"half of them within {ratios[quarter]:.3f} and {ratios[-1 - quarter]:.3f}"
        said = f"   min {ratios[0]:.3f}, median {statistics.median(ratios):.3f}, {spread}"
        print(f"{way.name:8}" + "".join(f"{cell:>10}" for cell in cells) + said)
    print(f"the fastest turns of alone by those of plain: {_fastest(ways):.3f}; target {TARGET}")


def _fastest(ways: list[Way]) -> float:
    return min(ways[1].cpu) / min(ways[0].cpu)


if __name__ == "__main__":
    main()
