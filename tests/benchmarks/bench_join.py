"""Seconds from ``elasticctl cluster join TOKEN`` until a rank on the new node has trained.

A node trains alone. Beside it runs the daemon of a node that is the only one of its own cluster, as
``service install`` leaves it. The clock starts before the command is, and stops when the first node
says that a step is committed in a world with the new node. Each round has new homes.

    python tests/benchmarks/bench_join.py [--rounds 5]

*command*: until it has ended; the daemon begins anew meanwhile. *view*: until both nodes are in
one. *world*: until a world with both has formed. *step*: until that has committed one. Nothing is
asserted; the exit code is 0 when it measured.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from elasticd.cli import local
from elasticd.cli.daemons import start_daemon
from elasticd.cli.submit import prepare
from elasticd.client import restarting
from elasticd.client.client import Client
from elasticd.core.words.requests.looking import ReadEvents, ShowStatus
from elasticd.types import JobId
from tests.integration.alone import JOBS, compile_kernels, copy_kernels
from tests.ports import free_address

ELASTICCTL = str(Path(sys.executable).with_name("elasticctl"))
FIRST, NEW = "node-0", "new"
PARTS = ("command", "view", "world", "step")
SETTINGS = ("job.entrypoint=high.py", "train.steps=1000000", 'job.args=["--pace-seconds", "0.01"]')
LONGEST_SECONDS = 120.0
POLL_SECONDS = 0.02
ASKED_SECONDS = 5.0


@contextmanager
def lone_daemon(home: Path) -> Iterator[None]:
    """The daemon of a node in a cluster of its own."""
    (home / "elasticd.toml").write_text(f"node_id = {NEW!r}\nlisten = {free_address()!r}\n")
    daemon = start_daemon(home)
    try:
        restarting.await_status(home, LONGEST_SECONDS)
        yield
    finally:
        daemon.terminate()
        daemon.wait(LONGEST_SECONDS)


def moment(began: float, true: Callable[[], object]) -> float:
    """Seconds since ``began`` until it is true."""
    while not true():
        if time.monotonic() - began > LONGEST_SECONDS:
            raise SystemExit("it took longer than two minutes")
        time.sleep(POLL_SECONDS)
    return time.monotonic() - began


def measure(folder: Path, kernels: Path) -> dict[str, float]:
    """What one join took."""
    homes = folder / "home"
    for home in (homes / FIRST, folder / NEW):
        home.mkdir(mode=0o700, parents=True)
        copy_kernels(kernels, home)
    client = Client(homes)
    try:
        local.up(homes, 1)
        job = JobId(client.submit(*prepare(JOBS / "job.toml", SETTINGS)))

        def status() -> dict[str, Any]:
            found: dict[str, Any] = client.request(ShowStatus(job))
            return found

        moment(time.monotonic(), lambda: status()["jobs"][0]["step"] > 2)
        with lone_daemon(folder / NEW):
            words = [ELASTICCTL, "--home", str(homes / FIRST), "cluster", "token"]
            token = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
            return joined(folder / NEW, token, client, job, status)
    finally:
        local.down(homes)


def joined(
    home: Path, token: str, client: Client, job: JobId, status: Callable[[], dict[str, Any]]
) -> dict[str, float]:
    """What each part took."""
    entered = 0

    def forms() -> bool:
        nonlocal entered
        events = [each for each in client.stream(ReadEvents(job)) if each["kind"] == "world_formed"]
        entered = status()["jobs"][0]["step"]
        return NEW in events[-1]["members"]

    began = time.monotonic()
    command = subprocess.Popen([ELASTICCTL, "--home", str(home), "cluster", "join", token],
                               stdout=subprocess.DEVNULL)  # fmt: skip
    with ThreadPoolExecutor(1) as aside:
        ended = aside.submit(lambda: (command.wait(), time.monotonic() - began))
        times = {"view": moment(began, lambda: NEW in status()["view"]["members"])}
        times["world"] = moment(began, forms)
        times["step"] = moment(began, lambda: status()["jobs"][0]["step"] > entered)
        code, times["command"] = ended.result(LONGEST_SECONDS)
    if code:
        raise SystemExit(f"cluster join ended with {code}")
    return times


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # daemons must not stay
    print(f"load of this machine before: {os.getloadavg()[0]:.1f}; {os.cpu_count()} cores")
    print("".join(f"{name:>10}" for name in PARTS) + "   seconds after the start of the command")
    rounds = []
    with tempfile.TemporaryDirectory(prefix="bench-join-") as name:
        kernels = compile_kernels(Path(name) / "alone")
        for number in range(given.rounds):
            rounds.append(measure(Path(name) / str(number), kernels))
            print("".join(f"{rounds[-1][part]:10.2f}" for part in PARTS), flush=True)
    middle = [statistics.median(each[part] for each in rounds) for part in PARTS]
    print("".join(f"{each:10.2f}" for each in middle) + f"   medians of {len(rounds)}")
    worst = max(each["step"] for each in rounds)
    print(f"asked: a step within {ASKED_SECONDS:.0f} s; the slowest took {worst:.2f} s")


if __name__ == "__main__":
    main()
