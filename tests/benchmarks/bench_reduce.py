"""What a reduction through the reducers costs, beside a bare all_sum of one array of that size.

Trainers and the processes of the bare ring take turns, round by round, so that both see the same
machine. Run: ``python tests/benchmarks/bench_reduce.py [--rounds 30]``.
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
from pathlib import Path
from time import perf_counter
from typing import IO

import numpy as np
import psutil

sys.path.insert(0, str(Path(__file__).parents[1] / "integration"))
from test_reducer import World, free_ports

from elasticd.ipc.chunks import ChunkPlan

MEGABYTE = 1 << 20
GRAINS = 4
Runner = Callable[[int], float]
"""Reduces a vector of so many bytes on every rank; returns the seconds of the slowest rank."""


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--ranks", type=int, nargs="*", default=[2, 3])
    parser.add_argument("--megabytes", type=int, nargs="*", default=[4, 20])
    options = parser.parse_args()
    if os.environ.get("BENCH_RANK"):
        _bare_rank(int(os.environ["BENCH_RANK"]))
        return
    print("ranks     MB   way        median ms      min ms    of all_sum (median, min)")
    for size in options.ranks:
        with ExitStack() as stack:
            runners = {"all_sum": stack.enter_context(bare(size))}
            worlds = {way: stack.enter_context(through(size, way)) for way in ("exact", "fast")}
            runners |= {way: runner for way, (runner, _) in worlds.items()}
            for megabytes in options.megabytes:
                _print_rows(size, megabytes, runners, options.rounds)
            for way, (_, world) in worlds.items():
                resident = [psutil.Process(each.pid).memory_info().rss for each in world.reducers]
                print(f"{size:5}          {way:8} reducers hold {max(resident) / MEGABYTE:.0f} MB")


def _print_rows(size: int, megabytes: int, runners: dict[str, Runner], rounds: int) -> None:
    seconds: dict[str, list[float]] = {way: [] for way in runners}
    for number in range(rounds + 3):
        for way, runner in runners.items():
            took = runner(megabytes * MEGABYTE)
            if number >= 3:
                seconds[way].append(took)
    bare_median, bare_least = statistics.median(seconds["all_sum"]), min(seconds["all_sum"])
    for way, values in seconds.items():
        median, least = statistics.median(values), min(values)
        print(
            f"{size:5} {megabytes:6}   {way:8} {median * 1e3:11.1f} {least * 1e3:11.1f}"
            f"    {median / bare_median:11.2f} {least / bare_least:8.2f}",
            flush=True,
        )


@contextmanager
def through(size: int, reduction: str) -> Iterator[tuple[Runner, World]]:
    """Reductions through reducers, timed from a barrier of the threads that stand for trainers."""
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder), size, reduction)
        cuts = [GRAINS * rank // size for rank in range(size + 1)]
        # Whole subtrees: one part a rank with 2 ranks, as the planner would cut.
        nodes = {2: (((0, 2),), ((2, 4),)), 3: (((0, 2),), ((2, 3),), ((3, 4),))}
        default = tuple(((cuts[rank], cuts[rank + 1]),) for rank in range(size))
        plan = ChunkPlan(GRAINS, nodes.get(size, default))
        vectors: dict[int, list[tuple[np.ndarray, np.ndarray]]] = {}
        step = 0

        def run(length_bytes: int) -> float:
            nonlocal step
            step += 1
            if length_bytes not in vectors:
                length = length_bytes // 4
                vectors[length_bytes] = [
                    (np.full(length, rank + 1, np.float32), np.empty(length, np.float32))
                    for rank in range(size)
                ]

            def reduce(rank: int) -> float:
                link, interrupt = world.links[rank], world.interrupt_fd(rank)
                vector, out = vectors[length_bytes][rank]
                link.barrier(step, interrupt)
                began = perf_counter()
                link.reduce(step, plan, {plan.parts[rank][0]: [vector]}, out, interrupt)
                took = perf_counter() - began
                assert out[0] == out[-1] == size * (size + 1) / 2
                return took

            return max(world.everywhere(reduce))

        try:
            yield run, world
        finally:
            world.close()


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
