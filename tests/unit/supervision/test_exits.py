"""The end of a process is told once and at once, and leaves it to be reaped, on both systems.

On Linux macOS's side asks a kernel that answers as kqueue(2) says.
"""

from __future__ import annotations

import asyncio
import errno
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import psutil
import pytest

from elasticd.supervision import exits
from elasticd.supervision.exits import wait_without_reaping, watch_exit


@dataclass(frozen=True)
class Kevent:
    ident: int
    filter: int
    flags: int
    fflags: int = 0
    data: int = 0


@dataclass
class Darwin:
    """The part of ``select`` that only macOS has: of one process, its end.

    Attributes:
        refuses: an error that it has for whatever it is asked; 0: none.
        raises: whether errors are raised, as without room for an event, or are events.
        deaf: it tells nothing of an end, as of a process that ended while it was asked.
    """

    refuses: int = 0
    raises: bool = False
    deaf: bool = False
    open: int = 0
    asked: list[Kevent] = field(default_factory=list)
    KQ_FILTER_PROC = -5
    KQ_EV_ADD, KQ_EV_ONESHOT, KQ_EV_ERROR = 0x1, 0x10, 0x4000
    KQ_NOTE_EXIT = 0x80000000
    kevent = Kevent

    def kqueue(self) -> Darwin:
        if self.refuses == errno.EMFILE:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        self.open += 1
        return self

    def close(self) -> None:
        self.open -= 1

    def control(self, changes: list[Kevent] | None, most: int, timeout: float) -> list[Kevent]:
        assert most == 1 and self.open
        self.asked += changes or []
        event = self.asked[-1]
        pid, until = event.ident, time.monotonic() + timeout
        if self.deaf:
            time.sleep(timeout)
            return []
        # filt_procattach looks with proc_find, which finds no zombies.
        if error := self.refuses or (errno.ESRCH if _has_ended(pid) else 0):
            if self.raises:
                raise OSError(error, os.strerror(error))
            return [Kevent(pid, event.filter, self.KQ_EV_ERROR, data=error)]
        while not _has_ended(pid):
            if time.monotonic() > until:
                return []
            time.sleep(0.005)
        return [Kevent(pid, event.filter, event.flags, self.KQ_NOTE_EXIT)]


def _has_ended(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@dataclass
class Asked:
    """What is asked, on which system."""

    platform: str
    kernel: Any


KERNELS = {
    "here": lambda: Asked(sys.platform, select),
    "darwin": lambda: Asked("darwin", Darwin()),
    "darwin, raised": lambda: Asked("darwin", Darwin(raises=True)),
    "darwin, deaf": lambda: Asked("darwin", Darwin(deaf=True)),
    "darwin, no memory": lambda: Asked("darwin", Darwin(errno.ENOMEM)),
    "darwin, no memory, raised": lambda: Asked("darwin", Darwin(errno.ENOMEM, raises=True)),
    "darwin, no files": lambda: Asked("darwin", Darwin(errno.EMFILE)),
}


@pytest.fixture(params=KERNELS)
def asked(request: pytest.FixtureRequest) -> Iterator[Asked]:
    made = KERNELS[request.param]()
    yield made
    for thread in threading.enumerate():
        if thread.name.startswith("exit of "):
            thread.join()  # what it waited for has ended
    assert not isinstance(made.kernel, Darwin) or made.kernel.open == 0, "a kqueue stays open"


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """Ends as soon as its stdin does. Named behind ``asked``, it has ended when that looks."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def test_it_is_waited_for_and_left_to_be_reaped(
    asked: Asked, child: subprocess.Popen[bytes]
) -> None:
    async def ended() -> None:
        waiting = asyncio.create_task(
            asyncio.to_thread(wait_without_reaping, child.pid, asked.platform, asked.kernel)
        )
        done, _ = await asyncio.wait([waiting], timeout=0.2)
        assert not done, "it has not ended yet"
        child.kill()
        await waiting

    asyncio.run(ended())
    assert psutil.Process(child.pid).status() == psutil.STATUS_ZOMBIE
    # And at once, of one that has ended already.
    wait_without_reaping(child.pid, asked.platform, asked.kernel)
    assert child.wait() == -9
    wait_without_reaping(child.pid, asked.platform, asked.kernel)


def test_it_is_told_once_in_the_loop(asked: Asked, child: subprocess.Popen[bytes]) -> None:
    told: list[int] = []

    async def main() -> None:
        both = asyncio.Event()

        def ended() -> None:
            asyncio.get_running_loop()
            told.append(child.pid)
            both.set()

        watch_exit(child.pid, ended, asked.platform, asked.kernel)
        forgotten = watch_exit(child.pid, lambda: told.append(0), asked.platform, asked.kernel)
        forgotten()
        child.kill()
        await both.wait()
        again = asyncio.Event()
        watch_exit(child.pid, again.set, asked.platform, asked.kernel)
        await again.wait()

    asyncio.run(main())
    assert told == [child.pid]
    assert child.wait() == -9


@pytest.mark.parametrize(
    ("error", "runs"),
    [(psutil.NoSuchProcess(7), False), (SystemError("?"), True), (RuntimeError("?"), True)],
)
def test_one_that_cannot_be_looked_at_just_now_is_looked_at_again(
    error: Exception, runs: bool
) -> None:
    """Its end would be told too early, or, where nobody catches that, never."""

    def look(pid: int) -> psutil.Process:
        raise error

    assert exits._runs(7, look) == runs


def test_macos_is_asked_for_an_exit_alone() -> None:
    kernel = Darwin()
    wait_without_reaping(2**22 + 1, "darwin", kernel)
    (event,) = kernel.asked
    assert (event.filter, event.fflags) == (kernel.KQ_FILTER_PROC, kernel.KQ_NOTE_EXIT)
    assert event.flags == kernel.KQ_EV_ADD | kernel.KQ_EV_ONESHOT
