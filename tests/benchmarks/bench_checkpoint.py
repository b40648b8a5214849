"""What checkpoints cost training, and how fast they are written, sent and restored, beside others.

Ours and the others take turns, so that all see the same machine; ratios are medians over rounds.
Before each turn as much memory is used and freed: a virtual machine that gives free pages back to
its host pays for fresh ones, up to 2 CPU seconds a GB, and which turn that hits is chance.
Run: ``python tests/benchmarks/bench_checkpoint.py [--megabytes 300 1200] [--rounds 7]
[--torch-python PATH]``, the latter an interpreter that has torch.
"""

from __future__ import annotations

import argparse
import functools
import gc
import itertools
import os
import queue
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import psutil

from elasticd.checkpoints.codec import read_tensors, write_shard
from elasticd.checkpoints.layout import split
from elasticd.checkpoints.sequential import write_all
from elasticd.core.words.trainers import FromTrainer
from elasticd.train.states.state import Snapshot, TrainingState
from elasticd.train.states.writer import CheckpointWriter, Task
from elasticd.train.world import TrainerWorld, Writes
from elasticd.types import JobId, Lineage, NodeId, Point, SnapshotMode, Stamp, Tag

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.benchmarks.loopback import peers
from tests.benchmarks.turns import compare, row, take_turns, warm

MB = 1_000_000
LAYERS = 12
SHARDS = 3
PEAKS = 3
"""Rounds of the memory table; its figures hardly vary."""
TABLES = ("stall", "write", "peer", "restore", "memory", "training")


class Training:
    """A model and its AdamW, so that parameters and both moments take about ``state_bytes``."""

    def __init__(self, state_bytes: int) -> None:
        width = int((state_bytes / 12 / LAYERS) ** 0.5)
        self.model = nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(LAYERS)))
        self.state = TrainingState(self.model, optim.AdamW(1e-4))
        self.state.evaluate()
        self.width = width
        self.take_batches_of(8)
        self.gradient = nn.value_and_grad(self.model, lambda m, x: m(x).square().mean())
        self.number = 0

    def take_batches_of(self, rows: int) -> None:
        """How much is computed for each parameter: tokens, if this were a language model."""
        self.batch = mx.random.normal((rows, self.width))

    def step(self, before_update: Callable[[], object] = lambda: None) -> None:
        """One update, evaluated."""
        assert self.state.optimizer is not None
        _, gradients = self.gradient(self.model, self.batch)
        mx.eval(gradients)
        before_update()
        self.state.optimizer.update(self.model, gradients)
        del gradients
        self.state.evaluate()
        self.number += 1

    def capture(self) -> Snapshot:
        point = Point(Lineage("bench"), self.number, Stamp(f"{self.number:032x}"))
        return self.state.capture(point, 0, self.number * 8)


class Ours:
    """The trainer's own writer, on a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.done: queue.Queue[FromTrainer] = queue.Queue()
        self.writer = CheckpointWriter(self._said, lambda figures: None)
        self.busy = False

    def _said(self, word: FromTrainer) -> None:
        self.done.put(word)

    def checkpoint(
        self, training: Training, mode: SnapshotMode = "reference", *, must: bool = False
    ) -> float:
        """Seconds for which training stood still."""
        began = perf_counter()
        snapshot = training.capture()
        nothing: Any = ((),)
        world = TrainerWorld(
            Tag(1, NodeId("a"), "n"), JobId("job"), 0, 1, (NodeId("a"),), snapshot.point, "init",
            nothing, nothing, "exact", -1, self.folder, Writes(10, SHARDS, 1),
        )  # fmt: skip
        self.writer.submit(Task(world, snapshot, 0.0, mode, must))
        self.busy = True
        return perf_counter() - began

    def wait(self) -> None:
        """Until it is written; the disk is then cleared."""
        if self.busy:
            self.done.get(timeout=600)
            self.busy = False
        shutil.rmtree(self.folder, ignore_errors=True)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, nargs="*", default=[300, 1200])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--rows", type=int, nargs="*", default=[8], help="of training batches")
    parser.add_argument("--only", choices=TABLES, nargs="*", default=TABLES)
    parser.add_argument("--torch-python", default="", metavar="PATH")
    parser.add_argument("--peaks", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rounds < 2:
        parser.error("--rounds: at least 2, or there are no quartiles")
    mx.set_default_device(mx.cpu)
    with tempfile.TemporaryDirectory(prefix="elasticd-bench-") as name:
        for megabytes in options.megabytes:
            if options.peaks:
                _print_peaks(Path(name), megabytes)
            else:
                _measure(Path(name), megabytes, options)


def _measure(folder: Path, megabytes: int, options: argparse.Namespace) -> None:
    training = Training(megabytes * MB)
    training.step()
    state_bytes = training.capture().bytes
    rounds = options.rounds
    print(f"\nstate of {state_bytes / MB:.0f} MB")
    tables: dict[str, Callable[[], None]] = {
        "stall": lambda: _stalls(folder, training, rounds, options.torch_python),
        "write": lambda: _writes(folder, training, rounds),
        "peer": lambda: peers(folder, state_bytes, rounds),
        "restore": lambda: _restores(folder, training, rounds),
        "memory": lambda: _memory(megabytes),
        "training": lambda: _throughput(folder, training, rounds, options.rows),
    }
    for name in options.only:
        tables[name]()


def _stalls(folder: Path, training: Training, rounds: int, torch_python: str) -> None:
    ours = Ours(folder / "ours")
    torch = _Torch(torch_python, folder, training) if torch_python else None
    seconds: dict[str, list[float]] = {}
    for _ in range(rounds):
        seconds.setdefault("elasticd, by reference", []).append(ours.checkpoint(training))
        training.step()
        ours.wait()
        seconds.setdefault("mx.save_safetensors in the loop", []).append(
            _save_mlx(folder, training)
        )
        if torch is not None:
            seconds.setdefault(f"dcp.async_save, {torch.version}", []).append(torch.save())
    for name, values in seconds.items():
        row(f"stall: {name}", f"{statistics.median(values) * 1000:10.2f} ms")
    if torch is not None:
        torch.close()
    else:
        print("  stall: torch dcp.async_save: not measured, no --torch-python")


def _save_mlx(folder: Path, training: Training) -> float:
    path = folder / "mlx.safetensors"
    began = perf_counter()
    mx.save_safetensors(str(path), dict(training.capture().tensors))
    seconds = perf_counter() - began
    path.unlink()
    return seconds


class _Torch:
    """torch's asynchronous save of as much, in an interpreter of its own."""

    def __init__(self, python: str, folder: Path, training: Training) -> None:
        sizes = [str(array.size) for array in training.capture().tensors.values()]
        script = Path(__file__).with_name("torch_async_save.py")
        self._process = subprocess.Popen(
            [python, str(script), str(folder), *sizes],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.version = self._answer()

    def save(self) -> float:
        """Seconds for which its training would have stood still."""
        assert self._process.stdin is not None
        print("save", file=self._process.stdin, flush=True)
        return float(self._answer().split()[0])

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        if not line:
            raise SystemExit(f"--torch-python: ended with {self._process.wait()}")
        return line

    def close(self) -> None:
        self._process.communicate()


def _writes(folder: Path, training: Training, rounds: int) -> None:
    snapshot = training.capture()
    pieces = [memoryview(a).cast("B") for a in snapshot.tensors.values()]  # type: ignore[arg-type]

    def plain() -> int:
        fd = os.open(folder / "plain", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for piece in pieces:
            write_all(fd, piece)
        os.fsync(fd)
        os.close(fd)
        return snapshot.bytes

    def shard() -> int:
        return write_shard(folder / "shard", snapshot.tensors, snapshot.metadata()).bytes

    ways = {"plain write and fsync": plain, "elasticd shard": shard}
    compare("write", ways, rounds, folder, before=lambda: warm(snapshot.bytes))


def _restores(folder: Path, training: Training, rounds: int) -> None:
    snapshot = training.capture()
    names = split({name: a.nbytes for name, a in snapshot.tensors.items()}, SHARDS)
    files = []
    for number, part in enumerate(names):
        path = folder / f"restore-{number}"
        tensors = {name: snapshot.tensors[name] for name in part}
        files.append((path, write_shard(path, tensors, snapshot.metadata()).digest))

    def plain() -> int:
        buffer, count = memoryview(bytearray(4 << 20)), 0
        for path, _ in files:
            with path.open("rb", buffering=0) as file:
                while read := file.readinto(buffer):
                    count += read
        return count

    def restore() -> int:
        tensors, _ = read_tensors([path for path, _ in files], [digest for _, digest in files])
        return sum(array.nbytes for array in tensors.values())

    def forget() -> None:
        for path, _ in files:
            _forget(path)
        warm(snapshot.bytes)

    ways = {"plain read": plain, "elasticd, verified": restore}
    compare("restore", ways, rounds, before=forget)
    for path, _ in files:
        path.unlink()


def _memory(megabytes: int) -> None:
    """Peak extra memory while a checkpoint is written and training goes on, in a fresh process
    whose freed arrays go back to the system at once, so that only what is held counts."""
    command = [sys.executable, __file__, "--peaks", "--megabytes", str(megabytes)]
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
    subprocess.run(command, env=environment, check=True)


def _print_peaks(folder: Path, megabytes: int) -> None:
    training, ours = Training(megabytes * MB), Ours(folder / "memory")
    mx.set_cache_limit(0)
    peaks: dict[Literal["none", SnapshotMode], list[int]] = {
        "none": [],
        "reference": [],
        "slices": [],
    }

    def work(mode: Literal["none", SnapshotMode]) -> None:
        # The worst that can be: a state that is held until after the last update.
        held = training.capture() if mode == "reference" else None
        if mode != "none":
            ours.checkpoint(training, mode, must=True)
        for _ in range(3):
            training.step(lambda: ours.writer.make_room(lambda: None))
        del held

    for number in range(PEAKS + 1):
        for mode, found in peaks.items():
            peak = _peak_of(functools.partial(work, mode))
            ours.wait()
            gc.collect()
            if number:
                found.append(peak)
    size = training.capture().bytes
    base = statistics.median(peaks.pop("none"))
    for mode, found in peaks.items():
        extra = statistics.median(found) - base
        row(
            f"peak extra memory: {mode}",
            f"{extra / MB:10.0f} MB",
            f"{extra / size:6.1%} of the state",
        )


def _peak_of(work: Callable[[], object]) -> int:
    """The most resident bytes while it runs."""
    marks = Path("/proc/self/clear_refs")
    if marks.exists():
        marks.write_text("5")  # forgets the high-water mark, see proc(5)
        work()
        status = Path("/proc/self/status").read_text()
        return 1024 * int(status.split("VmHWM:")[1].split()[0])
    me, over, peak = psutil.Process(), threading.Event(), 0

    def watch() -> None:
        nonlocal peak
        while not over.wait(0.002):
            peak = max(peak, me.memory_info().rss)

    thread = threading.Thread(target=watch)
    thread.start()
    work()
    over.set()
    thread.join()
    return peak


def _throughput(folder: Path, training: Training, rounds: int, rows: Sequence[int]) -> None:
    """Blocks of ten steps: without checkpoints, with one, with one that stops the loop.

    The more rows, the more is computed for each parameter, and the longer the steps take beside
    which one checkpoint is written.
    """
    ours = Ours(folder / "throughput")
    for count in rows:
        training.take_batches_of(count)
        training.step()
        _ten_steps(folder, training, rounds, ours, f"ten steps of {count} rows")


def _ten_steps(folder: Path, training: Training, rounds: int, ours: Ours, title: str) -> None:
    """What a block's first five steps took longer than its last five, beside which nothing is
    written any more, as a share of the block: a machine's speed wanders by more from one block to
    the next than a checkpoint costs."""
    unfinished = 0
    seconds: dict[str, list[list[float]]] = {}

    def steps(name: str, checkpoint: Callable[[], object]) -> None:
        nonlocal unfinished
        marks = [perf_counter()]
        checkpoint()
        for number in range(10):
            training.step()
            ours.writer.step_done()
            marks.append(perf_counter())
            unfinished += number == 4 and ours.busy and ours.done.empty()
        seconds.setdefault(name, []).append([b - a for a, b in itertools.pairwise(marks)])

    def after() -> None:
        ours.wait()
        ours.writer.interrupt()

    ways: dict[str, Callable[[], object]] = {
        "no checkpoint": lambda: None,
        "elasticd": lambda: ours.checkpoint(training),
        "mx.save_safetensors": lambda: _save_mlx(folder, training),
    }
    turns = {name: functools.partial(steps, name, way) for name, way in ways.items()}
    taken = take_turns(turns, rounds, after=after)
    for name in ways:
        lost = [sum(block[:5]) / sum(block[5:]) / 2 - 0.5 for block in seconds[name][1:]]
        low, middle, high = statistics.quantiles(lost, n=4)
        row(
            f"{title}: {name}",
            f"{statistics.median(taken[name].seconds):10.3f} s",
            f"{middle:+7.2%}",
            f"quartiles {low:+.1%} {high:+.1%}",
            f"CPU {statistics.median(taken[name].cpu):.2f} s",
        )
    print(f"  checkpoints that took longer than five steps: {unfinished} of {rounds + 1}")


def _forget(path: Path) -> None:
    """Make the next read come from the disk, where the system can be asked for that."""
    if sys.platform == "linux":
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


if __name__ == "__main__":
    main()
