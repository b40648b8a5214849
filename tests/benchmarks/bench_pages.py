"""What it costs that people look: the web page, the monitor, and what a daemon has to do for them.

    many       32 nodes and 10 events a second, told by a stand-in for a daemon: CPU time and memory
               of the page's process with one open page and with a hundred, and of a monitor
    recovery   a real cluster of three: SIGKILL of a trainer to the next committed step, with no
               open page and with a hundred at the first node, in turns; CPU time of its daemon
    paint      a page in a real browser, from its request to the first paint, and its bytes
    command    'elasticctl status' of a real cluster of three, from its start to its exit, and a
               Python that does nothing, in turns

    python tests/benchmarks/bench_pages.py [--rounds 7] [--seconds 20] [--only many command …]

Nothing is asserted; the exit code is 0 when it measured.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import os
import pty
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).parents[2]))

from elasticd.cli import local
from elasticd.core.words.requests.looking import ShowStatus
from elasticd.shell.control.webtoken import make_token, token_of
from tests.benchmarks.bench_recovery import FIRST, NODES, Bench, hurt
from tests.browser import browser, text_of, wait_for
from tests.integration.test_webpage import page_process
from tests.standin import JOB, answers
from tests.unit.client.fake_daemon import FakeDaemon

MANY_NODES, EVENTS_A_SECOND, PAGES = 32, 10.0, 100
MIB = 1 << 20
ELASTICCTL = (sys.executable, "-c", "from elasticd.cli import main; main()")


class Visitors:
    """So many open pages, which read all that they are told, in a thread."""

    def __init__(self, port: int, token: str, count: int) -> None:
        lines = (f"Host: 127.0.0.1:{port}", f"Authorization: Bearer {token}", "", "")
        self._ask = "\r\n".join(("GET /api/live HTTP/1.1", *lines)).encode()
        self._port, self._count = port, count
        self.told = [0] * count
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._all(),))

    def __enter__(self) -> Visitors:
        self._thread.start()
        until = time.monotonic() + 60
        while min(self.told, default=1) == 0:  # each has been shown something
            assert time.monotonic() < until, f"{self.told.count(0)} pages are told nothing"
            time.sleep(0.1)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        self._loop.close()

    async def _all(self) -> None:
        self._stop = asyncio.Event()
        pages = [asyncio.ensure_future(self._page(number)) for number in range(self._count)]
        await self._stop.wait()
        for page in pages:
            page.cancel()
        await asyncio.gather(*pages, return_exceptions=True)

    async def _page(self, number: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        writer.write(self._ask)
        while data := await reader.read(1 << 16):
            self.told[number] += len(data)
        raise AssertionError("the page has ended")


# --- many nodes, many events ----------------------------------------------------------------------


def many(seconds: float) -> None:
    """A stand-in for a daemon of that many nodes, whose job tells of something all the time."""
    canned, goes_on = answers(time.time(), MANY_NODES), threading.Event()

    def events(request: dict[str, Any]) -> Iterator[dict[str, Any]]:
        past = [each for each in canned["events"] if not each.get("end")]
        yield from past
        if not request.get("follow"):
            yield {"end": True}
            return
        for number in itertools.count():
            if goes_on.wait(1 / EVENTS_A_SECOND):
                return
            told = {"step": number, "bytes": MIB, "replicas": 2, "stall_seconds": 0.004}
            yield past[2] | {"time": time.time(), "reason": f"event {number}"} | told

    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        with FakeDaemon(home, {**canned, "events": events}), contextlib.ExitStack() as last:
            last.callback(goes_on.set)
            make_token(home)
            with page_process(home) as port:
                page = _child("elasticd.dashboard")
                for count in (1, PAGES):
                    with Visitors(port, token_of(home) or "", count):
                        _print(f"page's process, {count} open", page, seconds)
            with _monitor(home) as process:
                _print("a monitor", psutil.Process(process.pid), seconds)


def _print(what: str, process: psutil.Process, seconds: float) -> None:
    time.sleep(3.0)  # past its start
    share = _share(process, seconds)
    memory = process.memory_info().rss / MIB
    print(f"{what:28} {share:6.1%} of a core  {memory:5.0f} MiB", flush=True)


def _share(process: psutil.Process, seconds: float) -> float:
    """Of a core that the process takes."""
    before, began = process.cpu_times(), time.monotonic()
    time.sleep(seconds)
    after, spent = process.cpu_times(), time.monotonic() - began
    return (after.user + after.system - before.user - before.system) / spent


def _child(name: str) -> psutil.Process:
    found = [
        each
        for each in psutil.Process().children(recursive=True)
        if name in " ".join(each.cmdline())
    ]
    return found[0]


@contextlib.contextmanager
def _monitor(home: Path) -> Iterator[subprocess.Popen[bytes]]:
    """On a terminal that somebody reads."""
    own, its = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color"}
    process = subprocess.Popen(
        [*ELASTICCTL, "monitor", JOB, "--home", str(home)],
        stdin=its, stdout=its, stderr=its, env=environment, start_new_session=True,
    )  # fmt: skip
    os.close(its)

    def read() -> None:
        with contextlib.suppress(OSError):
            while os.read(own, 1 << 16):
                pass

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        yield process
    finally:
        process.terminate()
        process.wait()
        reader.join()
        os.close(own)


# --- recoveries -----------------------------------------------------------------------------------


def recovery(rounds: int, seconds: float) -> None:
    """In turns: nobody looks, a hundred pages look."""
    taken: dict[int, list[float]] = {0: [], PAGES: []}
    shares: dict[int, list[float]] = {0: [], PAGES: []}
    with tempfile.TemporaryDirectory(prefix="elasticd-bench-") as folder:
        home = Path(folder) / "cluster"
        local.up(home, NODES)
        try:
            bench = Bench(home, random.Random(1), 2.0)
            bench.submit_long()
            address, _, token = _address(home / FIRST).partition("/#token=")
            port = int(address.rpartition(":")[2])
            daemon = psutil.Process(bench.daemon_pid(FIRST))
            for number in range(rounds):
                for count in sorted(taken, reverse=bool(number % 2)):
                    with Visitors(port, token, count):
                        shares[count].append(_share(daemon, min(seconds, 5.0)))
                        taken[count] += [hurt(bench, "trainer", number)[0].seconds]
            stalled = bench.client.request(ShowStatus(ended=0))["loop"]
        finally:
            local.down(home)
    for count, found in taken.items():
        print(
            f"{count:3} pages  recovery median {statistics.median(found):.2f} s"
            f" ({min(found):.2f} to {max(found):.2f} in {len(found)}), daemon"
            f" {statistics.median(shares[count]):.1%} of a core",
            flush=True,
        )
    print(f"longest stall of a daemon's loop: {stalled}", flush=True)


def _address(home: Path) -> str:
    words = [*ELASTICCTL, "dashboard", "--home", str(home)]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    return next(word for word in said.split() if word.startswith("http"))


# --- first paint ----------------------------------------------------------------------------------

_PAINT = """
const paint = performance.getEntriesByName('first-contentful-paint')[0];
const all = ['navigation', 'resource'].flatMap(kind => performance.getEntriesByType(kind));
return [paint?.startTime ?? 0, all.reduce((sum, each) => sum + each.transferSize, 0)];
"""


def paint(rounds: int) -> None:
    """Of the page's own process and a stand-in for a daemon."""
    times, sizes = [], []
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        with FakeDaemon(home, answers(time.time())):
            make_token(home)
            with page_process(home) as port, browser() as driver:
                for _ in range(rounds + 1):  # the first one starts the browser
                    driver.get("about:blank")
                    driver.execute_cdp_cmd("Network.clearBrowserCache", {})
                    driver.get(f"http://127.0.0.1:{port}/#token={token_of(home)}")
                    wait_for("the job", lambda: JOB in text_of(driver, "job"), driver)
                    at, size = driver.execute_script(_PAINT)
                    times.append(at)
                    sizes.append(size)
    print(
        f"first paint median {statistics.median(times[1:]):.0f} ms ({min(times[1:]):.0f} to"
        f" {max(times[1:]):.0f} in {rounds}), {max(sizes) / 1000:.0f} kB",
        flush=True,
    )


# --- a command ------------------------------------------------------------------------------------

_COMMANDS_A_ROUND = 4


def command(rounds: int) -> None:
    """In turns: a Python that does nothing, and one that asks for the cluster's state."""
    with tempfile.TemporaryDirectory(prefix="elasticd-bench-") as folder:
        home = Path(folder) / "cluster"
        local.up(home, NODES)
        words = {
            "python -c pass": [sys.executable, "-c", "pass"],
            "elasticctl status": [*ELASTICCTL, "status", "--home", str(home)],
        }
        taken: dict[str, list[float]] = {name: [] for name in words}
        try:
            for _ in range(rounds * _COMMANDS_A_ROUND):
                for name, each in words.items():
                    began = time.perf_counter()
                    subprocess.run(each, stdout=subprocess.DEVNULL, check=True)
                    taken[name].append(time.perf_counter() - began)
        finally:
            local.down(home)
    for name, found in taken.items():
        median, least, most = (1000 * f(found) for f in (statistics.median, min, max))
        print(f"{name:18} median {median:.0f} ms ({least:.0f} to {most:.0f} in {len(found)})")


WANTED = ("many", "recovery", "paint", "command")


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--only", nargs="*", choices=WANTED)
    given = parser.parse_args()
    wanted = given.only or WANTED
    if "many" in wanted:
        many(given.seconds)
    if "recovery" in wanted:
        recovery(given.rounds, given.seconds)
    if "paint" in wanted:
        paint(given.rounds)
    if "command" in wanted:
        command(given.rounds)
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
