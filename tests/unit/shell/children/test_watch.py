"""What can be seen of a process from outside, on real ones."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import psutil
import pytest

from elasticd.machinememory import MachineMemory, machine_memory
from elasticd.recovery.signatures import cause_of_exit
from elasticd.shell.children.room import LowMemory
from elasticd.shell.children.server import Child
from elasticd.shell.children.watch import (
    CRITICAL_SECONDS,
    LOOK_SECONDS,
    STOPPED_SECONDS,
    ChildWatch,
    look_at,
)

pytestmark = pytest.mark.process

SYSTEMS = pytest.mark.parametrize("system", ["linux", "darwin"])
"""psutil, by which macOS is asked, knows Linux, too."""
WAITER = "import sys; print('up', flush=True); sys.stdin.read()"


class Process:
    """As much of a Child as the watch uses."""

    def __init__(self, script: str = WAITER) -> None:
        self.popen = subprocess.Popen(
            [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self.popen.stdout is not None
        assert self.popen.stdout.readline() == b"up\n"
        self.pid = self.popen.pid

    @property
    def child(self) -> Child:
        return cast(Child, self)


@pytest.fixture
def process() -> Iterator[Process]:
    made = Process()
    yield made
    made.popen.kill()
    with made.popen:
        pass


@SYSTEMS
def test_memory_outlives_the_process(process: Process, system: str) -> None:
    watch = ChildWatch(lambda: [process.child], lambda child, seconds: None, platform=system)
    if sys.platform == "linux":
        resource.prlimit(process.pid, resource.RLIMIT_AS, (1 << 40, resource.RLIM_INFINITY))
    watch.look(process.child, 0.0)
    process.popen.kill()
    process.popen.wait()
    watch.look(process.child, 1.0)
    memory = watch.last_seen(process.pid, 1.0)
    assert memory is not None
    assert 1 << 20 < memory.resident_bytes <= memory.virtual_bytes
    assert (memory.total_bytes > memory.available_bytes > 0) is (system == "linux")
    assert memory.group_kills == 0
    if sys.platform == "linux":
        assert memory.address_space_limit_bytes == 1 << 40
    assert watch.last_seen(process.pid, 1.0) is None


@pytest.mark.parametrize(("system", "fault"), [("linux", "oom"), ("darwin", "worker_exit")])
def test_a_mac_with_little_to_let_go_is_not_short_of_memory(
    process: Process, system: str, fault: str
) -> None:
    """As 64 GiB with a large model in use: what holds files, and what is free, are a few of them,
    and the pressure is normal."""
    full = MachineMemory(64 << 30, 2812 << 20)
    watch = ChildWatch(
        lambda: [process.child], lambda child, seconds: None, lambda low: None, lambda groups: None,
        system, lambda: full,
    )  # fmt: skip
    watch.look(process.child, 0.0)
    watch.look_at_memory(0.1)
    for signal_number in (-9, -11, -6, -5, -7):
        watch.look(process.child, 0.2)
        seen = watch.last_seen(process.pid, 0.3)
        assert cause_of_exit(signal_number, "", seen).fault == fault


def test_an_end_is_known_where_the_machines_memory_is_not(process: Process) -> None:
    """As on macOS 27, where psutil 7 raises from some call of a process on (its issue 2853)."""
    asked: list[int] = []

    def by_psutil() -> Any:
        asked.append(1)
        if len(asked) > 1:
            raise RuntimeError("host_statistics64(HOST_VM_INFO64) syscall failed")
        return SimpleNamespace(total=1 << 34, available=1 << 33)

    def memory() -> MachineMemory:
        return machine_memory("linux", by_psutil=by_psutil)

    watch = ChildWatch(lambda: [process.child], lambda child, seconds: None, memory=memory)
    watch.look(process.child, 0.0)
    seen = watch.last_seen(process.pid, 0.1)
    assert seen is not None and seen.available_bytes == 1 << 33
    watch.look(process.child, 0.2)
    seen = watch.last_seen(process.pid, 0.3)
    assert seen is not None and seen.resident_bytes > 0
    assert (seen.available_bytes, seen.total_bytes) == (0, 0)
    assert cause_of_exit(-9, "", seen).fault == "worker_exit"


@pytest.mark.parametrize(
    ("critical", "after", "counts"),
    [(True, 0.1, True), (True, CRITICAL_SECONDS + 0.1, False), (False, 0.1, False)],
)
def test_what_a_mac_said_before_it_killed_is_known(
    process: Process, critical: bool, after: float, counts: bool
) -> None:
    short = LowMemory("memory pressure 4 of 4", 1 << 30, critical=critical)
    watch = ChildWatch(
        lambda: [process.child], lambda child, seconds: None, pressure=lambda groups: short
    )
    watch.look(process.child, 0.0)
    watch.look_at_memory(0.0)
    process.popen.kill()
    memory = watch.last_seen(process.pid, after)
    assert memory is not None and memory.pressure == (short.reason if counts else "")


def test_what_a_mac_says_between_two_notices_counts(process: Process) -> None:
    """It warns first, and kills a second later."""
    said = [LowMemory("2 of 4", 1 << 30), LowMemory("4 of 4", 1 << 30, critical=True)]
    told: list[str] = []
    watch = ChildWatch(
        lambda: [process.child],
        lambda child, seconds: None,
        lambda low: told.append(low.reason),
        lambda groups: said.pop(0),
    )
    watch.look(process.child, 0.0)
    watch.look_at_memory(0.0)
    watch.look_at_memory(0.4)
    memory = watch.last_seen(process.pid, 0.8)
    assert memory is not None and (memory.pressure, told) == ("4 of 4", ["2 of 4"])


@SYSTEMS
def test_one_that_has_ended_and_was_not_reaped_is_none(process: Process, system: str) -> None:
    assert look_at(process.pid, system) is not None
    process.popen.kill()
    while psutil.Process(process.pid).status() != psutil.STATUS_ZOMBIE:
        pass
    assert look_at(process.pid, system) is None


def test_one_of_which_a_mac_tells_nothing_just_now_is_none() -> None:
    class Mute:
        def oneshot(self) -> contextlib.nullcontext[None]:
            return contextlib.nullcontext()

        def status(self) -> str:
            return psutil.STATUS_RUNNING

        def memory_info(self) -> Any:
            raise RuntimeError("proc_pidinfo(PROC_PIDTASKINFO) syscall failed")

    assert look_at(70, "darwin", lambda pid: cast(psutil.Process, Mute())) is None


@SYSTEMS
def test_a_stop_is_told_once(process: Process, system: str) -> None:
    told: list[tuple[int, float]] = []

    async def run() -> None:
        happened = asyncio.Event()

        def stopped(child: Any, seconds: float) -> None:
            told.append((child.pid, seconds))
            happened.set()

        watch = ChildWatch(lambda: [process.child], stopped, platform=system)
        watch.start()
        os.kill(process.pid, signal.SIGSTOP)
        async with asyncio.timeout(30):
            await happened.wait()
        watch.close()
        now = asyncio.get_running_loop().time()
        watch.look(process.child, now + 10)

    asyncio.run(run())
    ((pid, seconds),) = told
    assert pid == process.pid and seconds >= STOPPED_SECONDS


@SYSTEMS
def test_slices_are_no_stop(process: Process, system: str) -> None:
    """Stopped at every look, but it ran between them."""
    told: list[float] = []
    watch = ChildWatch(
        lambda: [process.child], lambda child, seconds: told.append(seconds), platform=system
    )
    for number in range(10):
        os.kill(process.pid, signal.SIGSTOP)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(process.pid, os.WUNTRACED)
        watch.look(process.child, number * LOOK_SECONDS)
        os.kill(process.pid, signal.SIGCONT)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(process.pid, os.WCONTINUED)
    assert told == []


BLOCKED = """
import ctypes, time
print("up", flush=True)
ctypes.CDLL(None).vfork()  # the kernel lets the parent wait as it would for a file server
time.sleep(600)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says so")
def test_who_waits_in_the_kernel_until_the_end_is_said_to() -> None:
    process, working = Process(BLOCKED), Process()
    family = psutil.Process(process.pid)
    try:
        watch = ChildWatch(list, lambda child, seconds: None)
        while family.status() != psutil.STATUS_DISK_SLEEP:
            family.status()
        for now in (0.0, 3.0, 6.0):
            watch.look(process.child, now)
            watch.look(working.child, now)
        memory, other = watch.last_seen(process.pid), watch.last_seen(working.pid)
        assert memory is not None and memory.waited_seconds == 6.0
        assert other is not None and other.waited_seconds == 0.0
    finally:
        for child in family.children():
            child.kill()
        for each in (process, working):
            each.popen.kill()
            with each.popen:
                pass
