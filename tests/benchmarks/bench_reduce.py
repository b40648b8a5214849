"""What a reduction through the reducers costs, beside a bare all_sum of one array of that size.

``gather`` and ``walk`` are the two ways of ``exact``. ``fast`` goes along the ring as a ``walk``
does; ``mlx`` is ``fast`` as in earlier versions, by MLX's ``all_sum``. Trainers and the processes
of the bare ring take turns, round by round, so that all see the same machine.

Run: ``python tests/benchmarks/bench_reduce.py [--rounds 10] [--ranks 2 3 4] [--megabytes 20 100]``.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import IO

import numpy as np
import psutil
from numpy.typing import NDArray

from elasticd.ipc.chunks import ChunkPlan
from elasticd.recovery import regroup, tree

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.children.test_reducer import World
from tests.ports import free_ports

MEGABYTE = 1 << 20
GRAINS = 8
Vector = NDArray[np.float32]
Runner = Callable[[int], float]
"""Reduces a vector of so many bytes on every rank; returns the seconds of the slowest rank."""


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--ranks", type=int, nargs="*", default=[2, 3, 4])
    parser.add_argument("--megabytes", type=int, nargs="*", default=[20, 100])
    options = parser.parse_args()
    if os.environ.get("BENCH_RANK"):
        _bare_rank(int(os.environ["BENCH_RANK"]))
        return
    print(
        "ranks     MB   way        median ms      min ms    of all_sum (of its turn, min)   CPU ms"
    )
    for size in options.ranks:
        with ExitStack() as stack:
            runners: dict[str, Runner] = {"all_sum": stack.enter_context(bare(size))}
            ways = {
                "gather": stack.enter_context(through(size, "exact")),
                "walk": stack.enter_context(through(size, "exact", walks=True)),
                "fast": stack.enter_context(through(size, "fast", walks=True)),
                "mlx": stack.enter_context(through(size, "fast")),
            }
            runners |= {way: each.reduce for way, each in ways.items()}
            for megabytes in options.megabytes:
                _print_rows(size, megabytes, runners, options.rounds)
            _print_rows(size, 0, {"barrier": ways["walk"].barrier}, options.rounds)
            for way, each in ways.items():
                resident = each.resident_bytes() / MEGABYTE
                times = each.bytes_sent(way) / each.bytes_sent("fast")
                print(
                    f"{size:5}          {way}: a reducer holds {resident:.0f} MB; "
                    f"sends {times:.2f} times a ring all-reduce"
                )


def _print_rows(size: int, megabytes: int, runners: dict[str, Runner], rounds: int) -> None:
    seconds: dict[str, list[float]] = {way: [] for way in runners}
    cpu: dict[str, list[float]] = {way: [] for way in runners}
    for number in range(rounds + 3):
        for way, runner in runners.items():
            before = _cpu_seconds()
            took = runner(megabytes * MEGABYTE)
            if number >= 3:
                seconds[way].append(took)
                cpu[way].append(_cpu_seconds() - before)
    measure = next(iter(seconds.values()))
    for way, values in seconds.items():
        median, least = statistics.median(values), min(values)
        turns = statistics.median(a / b for a, b in zip(values, measure, strict=True))
        print(
            f"{size:5} {megabytes:6}   {way:8} {median * 1e3:11.1f} {least * 1e3:11.1f}"
            f"    {turns:11.2f} {least / min(measure):8.2f}"
            f"           {statistics.median(cpu[way]) * 1e3:11.0f}",
            flush=True,
        )


def _cpu_seconds() -> float:
    """Of all ranks: of the ways only one is busy at a time."""
    me = psutil.Process()
    return sum(sum(each.cpu_times()[:2]) for each in (me, *me.children()))


class LongWorld(World):
    grace_seconds = 3600


class Through:
    """Reductions through reducers, by threads that stand for the trainers."""

    def __init__(self, folder: str, size: int, reduction: str, walks: bool) -> None:
        self.world = LongWorld(Path(folder), size, reduction, walks=walks)
        self._size, self._step = size, 0
        shares = regroup.shares(GRAINS, size)
        self._plan = ChunkPlan(GRAINS, tuple(tree.cover(share, GRAINS) for share in shares))
        self._vectors: dict[int, list[tuple[Vector, Vector]]] = {}

    def barrier(self, length_bytes: int) -> float:
        """Seconds of a barrier that all enter at once."""
        return self._timed(self._barrier)

    def reduce(self, length_bytes: int) -> float:
        """Seconds of a reduction of so many bytes, from when all ranks are ready for it."""
        if length_bytes not in self._vectors:
            length = length_bytes // 4
            self._vectors[length_bytes] = [
                (np.full(length, rank + 1, np.float32), np.empty(length, np.float32))
                for rank in range(self._size)
            ]
        return self._timed(partial(self._reduce, self._vectors[length_bytes]))

    def _reduce(self, vectors: list[tuple[Vector, Vector]], rank: int) -> None:
        vector, out = vectors[rank]
        nodes = self._plan.parts[rank]
        one_sum = self.world.reduction == "fast"
        parts = {node: [vector] for node in ([(0, GRAINS)] if one_sum else nodes)}
        interrupt = self.world.interrupt_fd(rank)
        self.world.links[rank].reduce(self._step, self._plan, parts, out, interrupt)
        assert out[0] == out[-1] > 0

    def _barrier(self, rank: int) -> None:
        self.world.links[rank].barrier(self._step, self.world.interrupt_fd(rank))

    def _timed(self, work: Callable[[int], None]) -> float:
        self._step += 1

        def run(rank: int) -> float:
            self._barrier(rank)
            began = perf_counter()
            work(rank)
            return perf_counter() - began

        seconds: list[float] = self.world.everywhere(run)
        return max(seconds)

    def bytes_sent(self, way: str) -> int:
        """By the rank that sends the most, of a large vector."""
        reduction = "exact" if way in ("gather", "walk") else "fast"
        return self._plan.bytes_sent(reduction, 12 * MEGABYTE, walks=way == "walk")

    def resident_bytes(self) -> int:
        """Of the largest reducer, chunk memory included."""
        return max(int(psutil.Process(each.pid).memory_info().rss) for each in self.world.reducers)


@contextmanager
def through(size: int, reduction: str, walks: bool = False) -> Iterator[Through]:
    with tempfile.TemporaryDirectory() as folder:
        way = Through(folder, size, reduction, walks)
        try:
            yield way
        finally:
            way.world.close()


@contextmanager
def bare(size: int) -> Iterator[Runner]:
    """The same sum as one all_sum of one array, in plain processes."""
    with tempfile.TemporaryDirectory() as folder:
        hosts = Path(folder) / "hosts.json"
        hosts.write_text(json.dumps([[f"127.0.0.1:{port}"] for port in free_ports(size)]))
        ranks = [
            subprocess.Popen(
                [sys.executable, __file__],
                env={
                    **os.environ,
                    "BENCH_RANK": str(rank),
                    "MLX_RANK": str(rank),
                    "MLX_HOSTFILE": str(hosts),
                },
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank in range(size)
        ]

        def run(length_bytes: int) -> float:
            for rank in ranks:
                _pipe(rank.stdin).write(f"{length_bytes}\n")
                _pipe(rank.stdin).flush()
            return max(float(_pipe(rank.stdout).readline()) for rank in ranks)

        try:
            yield run
        finally:
            for rank in ranks:
                rank.kill()
                rank.communicate()


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe


def _bare_rank(rank: int) -> None:
    import mlx.core as mx

    mx.set_default_device(mx.cpu)
    group = mx.distributed.init(strict=True, backend="ring")
    for line in sys.stdin:
        vector = mx.full((int(line) // 4,), rank + 1, mx.float32)
        mx.eval(vector)
        mx.eval(mx.distributed.all_gather(mx.zeros(32), group=group))  # all are here
        began = perf_counter()
        total = mx.distributed.all_sum(vector, group=group)
        mx.eval(total)
        print(perf_counter() - began, flush=True)
        del vector, total


if __name__ == "__main__":
    main()
