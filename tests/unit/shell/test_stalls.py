"""The loop is seen while it is held up; a process that did not run is no such loop."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from elasticd.shell import stalls
from elasticd.shell.stalls import (
    LINES_PER_MINUTE,
    STALLED,
    LoopStall,
    StallCount,
    StallWatch,
    frame_of,
    present_seconds,
    where,
)
from tests.chaos.stalls import longest

Run = Callable[[Coroutine[Any, Any, None]], None]


class Disk:
    """A disk on which a write hangs until it is let go."""

    def __init__(self) -> None:
        self.go = threading.Event()

    def write(self, begun: Callable[[], None]) -> None:
        begun()
        assert self.go.wait(60)


def test_a_loop_that_waits_for_the_disk_is_seen_while_it_waits(run: Run) -> None:
    disk, caught = Disk(), []

    async def main() -> None:
        over = asyncio.Event()
        loop = asyncio.get_running_loop()

        def see(found: str) -> None:
            caught.append(found)
            disk.go.set()

        def told(stall: LoopStall) -> None:
            watch.close()  # a busy machine may hold the loop up once more
            loop.call_soon_threadsafe(over.set)

        watch = StallWatch(caught=see, told=told)
        disk.write(watch.start)  # whatever is seen first is there, however late the write begins
        await over.wait()
        assert watch.seen.count == 1 and watch.seen.longest is not None
        assert watch.seen.longest.where == caught[0]

    with capture_logs() as lines:
        run(main())
    assert "write < test_stalls.py" in caught[0]
    (line,) = [line for line in lines if line["event"] == STALLED]
    assert line["where"] == caught[0] and line["seconds"] > 0


def test_the_watch_reads_no_source_from_a_disk_that_hangs(tmp_path: Path) -> None:
    source = tmp_path / "hangs.py"
    os.mkfifo(source)  # whoever opens it waits for ever
    names: dict[str, Any] = {"sys": sys}
    exec(compile("def stuck():\n    return sys._getframe()\n", str(source), "exec"), names)
    found: list[str] = []
    look = threading.Thread(target=lambda: found.append(where(names["stuck"]())), daemon=True)
    look.start()
    look.join(10)
    assert found and found[0].startswith("hangs.py:2 stuck < ")


def test_a_loop_that_turns_is_no_stall(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stalls, "STALL_SECONDS", 5.0)  # a busy machine holds it up for less

    async def main() -> None:
        watch = StallWatch()
        watch.start()
        for _ in range(50):
            await asyncio.sleep(0.001)
        watch.close()
        assert watch.seen == StallCount()

    run(main())


@pytest.mark.parametrize(
    ("waited", "processor", "present"),
    [
        (0.05, 0.0, 0.05),
        (0.08, 0.0, 0.08),  # a thread wakes when it can
        (3600.0, 0.01, 0.05),  # the lid was closed
        (0.6, 0.6, 0.6),  # one call kept the interpreter to itself
        (0.6, 0.1, 0.05),  # others had the processors
    ],
)
def test_time_in_which_the_process_did_not_run_is_not_counted(
    waited: float, processor: float, present: float
) -> None:
    assert present_seconds(waited, 0.05, processor) == present


def test_a_loop_that_waits_for_work_is_nowhere() -> None:
    ready, stop = threading.Event(), threading.Event()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        over = asyncio.Event()
        threading.Thread(target=lambda: (stop.wait(), loop.call_soon_threadsafe(over.set))).start()
        ready.set()
        await over.wait()

    thread = threading.Thread(target=asyncio.run, args=(main(),))
    thread.start()
    ready.wait()
    found = "?"
    while found:  # it is on its way there
        frame = frame_of(thread.ident or 0)
        found = where(frame) if frame is not None else "?"
    stop.set()
    thread.join()
    assert where(None) == ""


def test_many_stalls_cost_few_lines() -> None:
    watch = StallWatch()
    with capture_logs() as lines:
        for number in range(5 * LINES_PER_MINUTE):
            watch._count(LoopStall(0.2, f"f{number}"))
    assert len(lines) == LINES_PER_MINUTE
    assert watch._unsaid == 4 * LINES_PER_MINUTE
    with capture_logs() as lines:
        for seconds in (0.3, 0.25, 0.3, 1.5, 1.4):
            watch._count(LoopStall(seconds, "after many"))
    told = [(line["seconds"], line["unsaid"]) for line in lines]
    assert told == [(0.3, 4 * LINES_PER_MINUTE), (1.5, 2)], "the longest so far, each time"


def test_the_soaks_read_what_daemons_log(tmp_path: Path) -> None:
    line = structlog.processors.LogfmtRenderer(key_order=["timestamp", "level", "event"])
    watch = StallWatch()
    for node, seconds in (("node-0", 0.2), ("node-1", 0.618), ("node-1", 0.3)):
        with capture_logs() as said:
            watch._say(STALLED, LoopStall(seconds, "archives.py:62 keep < queries.py:282 submit"))
        (event,) = said
        log = tmp_path / node / "daemon.log"
        log.parent.mkdir(exist_ok=True)
        with log.open("a") as file:
            file.write(str(line(None, "", {"level": event.pop("log_level"), **event})) + "\n")
    found = longest(tmp_path)
    assert found.seconds == 0.618
    assert found.where == "node-1: archives.py:62 keep < queries.py:282 submit"


_STOPPED = """
import asyncio, sys
from elasticd.shell.stalls import StallWatch

async def main():
    await asyncio.to_thread(int)  # what that needs is imported in the loop, which may take long
    watch = StallWatch(told=lambda stall: print("stall", stall, flush=True))
    watch.start()
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    watch.close()

asyncio.run(main())
"""


@pytest.mark.process
def test_a_process_that_was_stopped_has_not_stalled() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _STOPPED],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        assert child.stdin is not None
        try:
            assert child.stdout.readline() == "ready\n"
            os.kill(child.pid, signal.SIGSTOP)
            os.waitpid(child.pid, os.WUNTRACED)
            time.sleep(1.5)  # what is tried: it stays stopped for so long
            os.kill(child.pid, signal.SIGCONT)
            line = child.stdout.readline()
            child.stdin.close()
            assert "this process did not run" in line
            assert "stall" not in child.stdout.read()
        finally:
            child.kill()


GARBAGE = """
import gc, threading
from elasticd.shell.stalls import frame_of

class Ring:
    def __init__(self):
        self.me, self.local = self, threading.local()
        self.local.value = 1

gc.set_threshold(1)
for _ in range(100):
    gc.disable()
    Ring()
    gc.enable()
    assert frame_of(threading.get_ident()) is not None
    assert gc.isenabled()
"""


@pytest.mark.process
def test_garbage_that_is_collected_while_it_looks_does_not_hold_the_daemon_up_for_ever() -> None:
    """One daemon of those that the benchmark of years starts stood still so, deaf to signals."""
    assert subprocess.run([sys.executable, "-c", GARBAGE], timeout=60, check=False).returncode == 0
