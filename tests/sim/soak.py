"""Run the simulator over many seeds: ``python tests/sim/soak.py --seconds 60``.

Two worker processes take turns at the seeds from ``--first`` on. The last line is ``faults N
violations M``; the exit code is 1 if M > 0. A failing seed is printed with the command that replays
and shrinks it. Ctrl-C ends the soak with the same report over what was done so far.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path

if not __package__:
    # A script belongs to no package, nor does it in a worker; what follows is imported as if.
    sys.path[0] = str(Path(__file__).resolve().parents[1])
    __package__ = "sim"

from .tally import Tally, work
from .wanted import Wanted, add_to

_PROGRESS_SECONDS = 10.0


def soak(first: int, seconds: float, wanted: Wanted, workers: int) -> Tally:
    """Run seeds for ``seconds`` of real time, or until Ctrl-C."""
    context = multiprocessing.get_context("spawn")
    pipes: list[Connection] = []
    processes: list[SpawnProcess] = []
    for number in range(workers):
        ours, theirs = context.Pipe(duplex=False)
        given = (theirs, first + number, workers, wanted)
        process = context.Process(target=work, args=given, daemon=True)
        process.start()
        theirs.close()
        pipes.append(ours)
        processes.append(process)
    total = Tally()
    try:
        _collect(total, pipes, time.monotonic() + seconds, wanted)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    finally:
        for process in processes:
            process.terminate()
            process.join()
    return total


def _collect(total: Tally, pipes: list[Connection], end: float, wanted: Wanted) -> None:
    said = time.monotonic()
    while (now := time.monotonic()) < end:
        for pipe in wait(pipes, timeout=min(1.0, end - now)):
            assert isinstance(pipe, Connection)
            batch = pipe.recv()  # a worker that died raises EOFError: the soak has failed
            total.merge(batch)
            for seed, problem in batch.problems:
                replay = f"python tests/sim/replay.py {seed}{wanted.options} --shrink"
                print(f"seed {seed}: {problem}\n    replay: {replay}", flush=True)
        if now - said > _PROGRESS_SECONDS:
            said = now
            print(total.line(), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="real time to spend")
    parser.add_argument("--first", type=int, help="the first seed (default: from the clock)")
    parser.add_argument("--workers", type=int, default=2, help="processes (default: 2)")
    add_to(parser)
    given = parser.parse_args()
    first = given.first if given.first is not None else int(time.time()) * 1000
    print(f"seeds from {first} on", flush=True)
    total = soak(first, given.seconds, Wanted.of(given), given.workers)
    print(total.report())
    print(f"faults {total.total} violations {len(total.problems)}")
    return 1 if total.problems else 0


if __name__ == "__main__":
    sys.exit(main())
