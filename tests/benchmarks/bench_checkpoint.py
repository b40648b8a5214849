"""What checkpoints cost training, and how fast they are written, sent and restored, beside others.

Ours and the others take turns, so that all see the same machine. torch is measured if it is
installed. Run: ``python tests/benchmarks/bench_checkpoint.py [--megabytes 300 1200]``.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import importlib.util
import os
import queue
import shutil
import socket
import statistics
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import psutil

from elasticd.checkpoints.codec import read_tensors, write_shard
from elasticd.checkpoints.disk import write_all
from elasticd.checkpoints.layout import split
from elasticd.shell import transfer
from elasticd.train.state import Snapshot, TrainingState
from elasticd.train.world import World, Writes
from elasticd.train.writer import CheckpointWriter, Task
from elasticd.types import JobId, Lineage, NodeId, Point, Stamp, Tag

MB = 1_000_000
LAYERS = 12
SHARDS = 3


class Training:
    """A model and its AdamW, so that parameters and both moments take about ``state_bytes``."""

    def __init__(self, state_bytes: int) -> None:
        width = int((state_bytes / 12 / LAYERS) ** 0.5)
        self.model = nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(LAYERS)))
        self.state = TrainingState(self.model, optim.AdamW(1e-4))
        self.state.evaluate()
        self.batch = mx.random.normal((8, width))
        self.gradient = nn.value_and_grad(self.model, lambda m, x: m(x).square().mean())
        self.number = 0

    def step(self) -> None:
        """One update, evaluated."""
        assert self.state.optimizer is not None
        _, gradients = self.gradient(self.model, self.batch)
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
        self.done: queue.Queue[Mapping[str, Any]] = queue.Queue()
        self.writer = CheckpointWriter(self._said, lambda figures: None)
        self.busy = False

    def _said(self, message: Mapping[str, Any]) -> None:
        self.done.put(message)

    def checkpoint(
        self, training: Training, mode: str = "reference", *, must: bool = False
    ) -> float:
        """Seconds for which training stood still."""
        began = perf_counter()
        snapshot = training.capture()
        nothing: Any = ((),)
        world = World(
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
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    mx.set_default_device(mx.cpu)
    with tempfile.TemporaryDirectory(prefix="elasticd-bench-") as folder:
        for megabytes in options.megabytes:
            _measure(Path(folder), megabytes, options.rounds)
        _throughput(Path(folder), min(options.megabytes), options.rounds)


def _measure(folder: Path, megabytes: int, rounds: int) -> None:
    training = Training(megabytes * MB)
    training.step()
    state_bytes = training.capture().bytes
    print(f"\nstate of {state_bytes / MB:.0f} MB")
    _stalls(folder, training, rounds)
    _writes(folder, training, rounds)
    _peers(state_bytes, rounds)
    _restores(folder, training, rounds)
    _memory(folder, training)


def _stalls(folder: Path, training: Training, rounds: int) -> None:
    ours = Ours(folder / "ours")
    seconds: dict[str, list[float]] = {}
    others = {"mx.save_safetensors in the loop": lambda: _save_mlx(folder, training)}
    others |= _torch(folder, training)
    for _ in range(rounds):
        seconds.setdefault("elasticd, by reference", []).append(ours.checkpoint(training))
        training.step()
        ours.wait()
        for name, save in others.items():
            seconds.setdefault(name, []).append(save())
    for name, values in seconds.items():
        _row(f"stall: {name}", f"{statistics.median(values) * 1000:10.2f} ms")
    if len(others) == 1:
        print("  stall: torch dcp.async_save: torch is not installed here")


def _save_mlx(folder: Path, training: Training) -> float:
    path = folder / "mlx.safetensors"
    began = perf_counter()
    mx.save_safetensors(str(path), dict(training.capture().tensors))
    seconds = perf_counter() - began
    path.unlink()
    return seconds


def _torch(folder: Path, training: Training) -> dict[str, Callable[[], float]]:
    if importlib.util.find_spec("torch") is None:
        return {}
    torch: Any = importlib.import_module("torch")
    dcp: Any = importlib.import_module("torch.distributed.checkpoint")
    sizes = {name: array.size for name, array in training.capture().tensors.items()}
    state = {name: torch.zeros(size) for name, size in sizes.items()}
    if not torch.distributed.is_initialized():
        address = f"file://{folder / 'torch-store'}"
        torch.distributed.init_process_group("gloo", init_method=address, rank=0, world_size=1)

    def save() -> float:
        path = folder / "torch"
        began = perf_counter()
        future = dcp.async_save(state, checkpoint_id=str(path))
        seconds = perf_counter() - began
        future.result()
        shutil.rmtree(path)
        return seconds

    return {"torch dcp.async_save": save}


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

    _compare("write", {"plain write and fsync": plain, "elasticd shard": shard}, rounds, folder)


def _peers(size: int, rounds: int) -> None:
    source = os.memfd_create("source") if hasattr(os, "memfd_create") else _temporary()
    block = os.urandom(1 << 20)
    for start in range(0, size, len(block)):
        os.pwrite(source, block[: size - start], start)
    with _daemon_side(source) as address:
        sources = {
            "raw loopback socket": lambda: _raw_copy(source, size),
            "elasticd fetch": lambda: _fetch(address),
        }
        _compare("peer", sources, rounds)
    os.close(source)


def _temporary() -> int:
    with tempfile.TemporaryFile(buffering=0) as file:
        return os.dup(file.fileno())


def _fetch(address: str) -> int:
    sink = os.memfd_create("sink") if hasattr(os, "memfd_create") else _temporary()
    try:
        return asyncio.run(transfer.fetch(address, {"what": "shard"}, sink))
    finally:
        os.close(sink)


@contextmanager
def _daemon_side(source: int) -> Iterator[str]:
    """Answers fetches with ``source``, as a daemon does, in a process's other thread."""
    loop = asyncio.new_event_loop()
    ready: queue.Queue[str] = queue.Queue()
    over = asyncio.Event()

    async def serve(request: dict[str, Any]) -> int:
        return os.dup(source)

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await transfer.read_frame(reader, 1 << 16)
        await transfer.answer(request, writer, serve)
        await transfer.close(writer)

    async def run() -> None:
        server = await asyncio.start_server(connected, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        ready.put(f"{host}:{port}")
        await over.wait()
        server.close()

    thread = threading.Thread(target=lambda: loop.run_until_complete(run()))
    thread.start()
    try:
        yield ready.get(timeout=10)
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()
        loop.close()


def _raw_copy(source: int, size: int) -> int:
    """sendfile to a socket, recv_into and write: no frames, no loop, nothing else."""
    listener = socket.create_server(("127.0.0.1", 0))
    sink = os.memfd_create("sink") if hasattr(os, "memfd_create") else _temporary()

    def send() -> None:
        with socket.create_connection(listener.getsockname()) as out:
            offset = 0
            while offset < size:
                offset += os.sendfile(out.fileno(), source, offset, 1 << 20)

    thread = threading.Thread(target=send)
    thread.start()
    received, buffer = 0, memoryview(bytearray(1 << 20))
    with listener, listener.accept()[0] as connection:
        while count := connection.recv_into(buffer):
            write_all(sink, buffer[:count])
            received += count
    thread.join()
    os.close(sink)
    return received


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

    ways = {"plain read": plain, "elasticd, verified": restore}
    _compare("restore", ways, rounds, before=forget)
    for path, _ in files:
        path.unlink()


def _memory(folder: Path, training: Training) -> None:
    """Peak extra memory while a checkpoint is written and training goes on."""
    ours = Ours(folder / "memory")
    mx.set_cache_limit(0)
    training.step()
    gc.collect()
    size = training.capture().bytes

    def only_train() -> None:
        for _ in range(3):
            training.step()

    base = _peak_of(only_train)
    for mode in ("reference", "slices"):

        def work(mode: str = mode) -> None:
            ours.checkpoint(training, mode, must=True)
            for _ in range(3):
                ours.writer.make_room(lambda: None)
                training.step()

        extra = _peak_of(work) - base
        ours.wait()
        share = f"{extra / size:6.1%} of the state"
        _row(f"peak extra memory: {mode}", f"{extra / MB:10.0f} MB", share)
    mx.set_cache_limit(1 << 40)


def _peak_of(work: Callable[[], object]) -> int:
    """The most resident bytes while it runs."""
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


def _throughput(folder: Path, megabytes: int, rounds: int) -> None:
    """Blocks of ten steps: without checkpoints, with one, with one that stops the loop."""
    training = Training(megabytes * MB)
    ours = Ours(folder / "throughput")

    def steps() -> None:
        for _ in range(10):
            training.step()
            ours.writer.step_done()

    ways: dict[str, Callable[[], object]] = {
        "no checkpoints": lambda: None,
        "elasticd every 10 steps": lambda: ours.checkpoint(training),
        "mx.save_safetensors every 10 steps": lambda: _save_mlx(folder, training),
    }
    steps()
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds + 1):
        for name, save in ways.items():
            began = perf_counter()
            save()
            steps()
            seconds[name].append(perf_counter() - began)
            ours.wait()
            os.sync()
    print(f"\nten steps beside a state of {megabytes} MB")
    base = statistics.median(seconds["no checkpoints"])
    for name, values in seconds.items():
        median = statistics.median(values)
        _row(name, f"{median:10.3f} s", f"{median / base - 1:+7.2%}")


def _forget(path: Path) -> None:
    """Make the next read come from the disk, where the system can be asked for that."""
    if hasattr(os, "posix_fadvise"):
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _compare(
    what: str,
    ways: Mapping[str, Callable[[], int]],
    rounds: int,
    folder: Path | None = None,
    before: Callable[[], None] = lambda: None,
) -> None:
    """Rates of ways to move the same bytes, in turns; the first is the measure of the others."""
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, work in ways.items():
            before()
            began = perf_counter()
            count = work()
            rates[name].append(count / (perf_counter() - began))
            for path in folder.glob("*") if folder is not None else ():
                path.unlink()
    base = statistics.median(next(iter(rates.values())))
    for name, values in rates.items():
        median = statistics.median(values)
        _row(f"{what}: {name}", f"{median / 1e9:10.2f} GB/s", f"{median / base:7.2f} of it")


def _row(name: str, value: str, note: str = "") -> None:
    print(f"  {name:<44} {value:>14} {note:>22}".rstrip(), flush=True)


if __name__ == "__main__":
    main()
