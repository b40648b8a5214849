"""Does a ring with several connections a link move more than one with a single one, here?

MLX's ring takes several addresses a rank and splits what it sends among them. Rings of two and
three processes gather what reducers gather, with 1, 2 and 4 connections in turns; ``gain`` is the
median time of one connection over that of several: above 1 several are faster. CPU time is that of
all processes for one collective, waiting included (the ring spins while it waits).

    python tests/benchmarks/bench_connections.py [--rounds 5] [--ranks 2,3]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path

CONNECTIONS = (1, 2, 4)
SIZES = (64 << 10, 1 << 20, 16 << 20)
REPEATS = {64 << 10: 60, 1 << 20: 30, 16 << 20: 6}
RUN_SECONDS = 120.0


def rank_main() -> None:
    """One rank: seconds per collective of each size on stdout, from rank 0."""
    import mlx.core as mx

    mx.set_default_device(mx.cpu)
    group = mx.distributed.init(strict=True, backend="ring")
    found = {}
    for size in SIZES:
        data = mx.zeros((size // 4,), mx.float32)
        mx.eval(data)
        times = []
        cpu = time.process_time()
        for _ in range(REPEATS[size]):
            started = time.perf_counter()
            mx.eval(mx.distributed.all_gather(data, group=group))
            times.append(time.perf_counter() - started)
        spent = (time.process_time() - cpu) / REPEATS[size]
        found[size] = (statistics.median(times), spent)
    print(json.dumps(found), flush=True)
    os._exit(0)


def free_ports(count: int) -> list[int]:
    """Ports that nobody has now."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def ring(ranks: int, connections: int) -> dict[int, tuple[float, float]]:
    """Per size the seconds of a collective and the CPU seconds of all ranks for it."""
    ports = free_ports(ranks * connections)
    hosts = [
        [f"127.0.0.1:{port}" for port in ports[rank * connections :][:connections]]
        for rank in range(ranks)
    ]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "hosts.json"
        path.write_text(json.dumps(hosts))
        processes = [
            subprocess.Popen(
                [sys.executable, __file__, "--rank-main"],
                env={**os.environ, "MLX_RANK": str(rank), "MLX_HOSTFILE": str(path)},
                stdout=subprocess.PIPE,
            )
            for rank in range(ranks)
        ]
        try:
            said = [json.loads(p.communicate(timeout=RUN_SECONDS)[0]) for p in processes]
        finally:
            for process in processes:
                process.kill()
                process.wait()
    return {s: (said[0][str(s)][0], sum(one[str(s)][1] for one in said)) for s in SIZES}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ranks", default="2,3", help="comma-separated")
    parser.add_argument("--rank-main", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank_main:
        rank_main()
        return
    print(f"load of this machine before: {os.getloadavg()[0]:.1f}; {os.cpu_count()} cores")
    titles = zip(("ranks", "KiB", "connections", "ms", "CPU ms", "gain", "CPU gain"),
                 (5, 8, 13, 9, 9, 7, 10), strict=True)  # fmt: skip
    print("".join(f"{title:>{width}}" for title, width in titles))
    for ranks in (int(text) for text in options.ranks.split(",")):
        seen: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
        for _ in range(options.rounds):
            for connections in CONNECTIONS:
                for size, sample in ring(ranks, connections).items():
                    seen[size, connections].append(sample)
        for size in SIZES:
            wall = {c: statistics.median(s for s, _ in seen[size, c]) for c in CONNECTIONS}
            cpu = {c: statistics.median(s for _, s in seen[size, c]) for c in CONNECTIONS}
            for count in CONNECTIONS:
                print(
                    f"{ranks:5}{size >> 10:8}{count:13}{1000 * wall[count]:9.2f}"
                    f"{1000 * cpu[count]:9.2f}{wall[1] / wall[count]:7.2f}"
                    f"{cpu[1] / cpu[count]:10.2f}",
                    flush=True,
                )
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"{children.ru_utime + children.ru_stime:.0f} CPU seconds in all")


if __name__ == "__main__":
    main()
