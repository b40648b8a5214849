"""How soon does a daemon answer whose home has two years of life, how much memory does it take?

``load`` reads the journal and the events in one process; ``daemon`` starts a real one and asks
for its status until it answers and follows a view of two; the other one is young.

    python tests/benchmarks/bench_age.py [--jobs 20000] [--events 1000000] [--origins 20000]
        [--long 0.05]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from elasticd.client.client import Client
from elasticd.core.words.requests.looking import ShowStatus
from elasticd.errors import ElasticdError
from elasticd.shell.storage import papers
from elasticd.shell.storage.eventlog import EventLog
from elasticd.shell.storage.records import StableRecords
from tests.benchmarks import aged_home
from tests.members import member

PORTS = (47_301, 47_302)
GIVE_UP_SECONDS = 300.0


def load(home: Path) -> None:
    """Print what reading takes, and what it takes up."""
    before = psutil.Process().memory_info().rss
    started = time.perf_counter()
    records = StableRecords(home)
    stable = records.recover()
    journal = time.perf_counter() - started
    memory = psutil.Process().memory_info().rss - before
    started = time.perf_counter()
    log = EventLog(home / "events", "bench/0")
    found = {
        "jobs": len(stable.records),
        "journal_seconds": round(journal, 2),
        "journal_mib": memory >> 20,
        "events_seconds": round(time.perf_counter() - started, 2),
        "origins": len(log.vector()),
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
    }
    print(json.dumps(found))


def daemons(aged: Path, young: Path) -> dict[str, Any]:
    """Until the aged daemon answers, and until both are in a view: how long that takes, of it on a
    CPU, and the daemon's memory then."""
    settle(aged, young, PORTS)
    found: dict[str, Any] = {}
    with running(young):
        await_members(young, 1)
        started = time.perf_counter()
        with running(aged) as daemon:
            for state, members in (("answers", 1), ("joined", 2)):
                await_members(aged, members)
                times = daemon.cpu_times()
                found[f"{state}_seconds"] = round(time.perf_counter() - started, 2)
                found[f"{state}_cpu_seconds"] = round(times.user + times.system, 2)
                found[f"{state}_mib"] = daemon.memory_info().rss >> 20
    return found


def settle(aged: Path, young: Path, ports: Sequence[int]) -> None:
    """Let both be of one cluster, and remove nothing."""
    for home, own, other in ((young, ports[0], ports[1]), (aged, ports[1], ports[0])):
        home.mkdir(exist_ok=True)
        (home / "elasticd.toml").write_text(
            f'node_id = "{home.name}"\nlisten = "127.0.0.1:{own}"\npeers = ["127.0.0.1:{other}"]\n'
            "[keep]\ndays = 0\njobs = 0\nbytes = 0\n"
        )
        papers.write(home, member(home.name))


@contextmanager
def running(home: Path) -> Iterator[psutil.Process]:
    """The daemon of that home."""
    command = [sys.executable, "-m", "elasticd.shell.daemon", "run", "--home", str(home)]
    # As where it is installed: what the first one has compiled the other needn't compile again.
    kept = {n: v for n, v in os.environ.items() if n != "PYTHONDONTWRITEBYTECODE"}
    compiled = {"PYTHONPYCACHEPREFIX": str(home.parent / "compiled")}
    with (home / "daemon.log").open("ab") as log:
        process = subprocess.Popen(
            command, env=kept | compiled, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    try:
        yield psutil.Process(process.pid)
    finally:
        process.kill()
        process.wait()


def await_members(home: Path, members: int) -> None:
    """Until its daemon answers, and is in a view of so many."""

    def are_there() -> bool:
        status = Client(home).request(ShowStatus(ended=0))
        return members == 1 or len(status["view"]["members"]) >= members

    await_that(home, are_there)


def await_that(home: Path, holds: Callable[[], bool]) -> None:
    """Until the daemon of that home says so."""
    deadline = time.perf_counter() + GIVE_UP_SECONDS
    while time.perf_counter() < deadline:
        with suppress(ElasticdError):
            if holds():
                return
        time.sleep(0.02)
    raise SystemExit(f"{home}: not there after {GIVE_UP_SECONDS:g} s; see its daemon.log")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=aged_home.JOBS)
    parser.add_argument("--events", type=int, default=aged_home.EVENTS)
    parser.add_argument("--origins", type=int, default=aged_home.ORIGINS)
    parser.add_argument("--long", type=float, default=aged_home.LONG)
    parser.add_argument("--load", type=Path)
    options = parser.parse_args()
    if options.load:
        load(options.load)
        return
    with tempfile.TemporaryDirectory(prefix="elasticd-age-") as folder:
        aged, young = Path(folder, "aged"), Path(folder, "young")
        aged_home.make(aged, options.jobs, options.events, options.origins, options.long)
        for _ in range(2):  # the first start makes the index of events
            subprocess.run([sys.executable, __file__, "--load", str(aged)], check=True)
        print(json.dumps(daemons(aged, young)))


if __name__ == "__main__":
    main()
