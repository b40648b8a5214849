"""Learning of a process's exit from the kernel, in milliseconds.

Linux: a pidfd becomes readable when the process has ended. macOS: kqueue's NOTE_EXIT, waited for in
a thread that also looks once a second. Both work for any process of the account, also for one that
another process started. Neither reaps: the pid of an own child stays taken until its owner calls
``wait``, so a signal sent between the two can't reach a stranger.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import os
import select
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import psutil

from elasticd.supervision.birth import UNSEEN

_LOOK_SECONDS = 0.05
_LOOK_AGAIN_SECONDS = 1.0
"""After so long without a word of kqueue it is looked whether the process runs at all: of one that
ended while it was asked nothing may be told."""


def watch_exit(
    pid: int, on_exit: Callable[[], None], platform: str = sys.platform, kernel: Any = select
) -> Callable[[], None]:
    """Call ``on_exit`` once, in the running loop, when the process ``pid`` has ended.

    Returns a function that ends the watch. ``kernel`` has ``kqueue``, where that is asked.
    """
    loop = asyncio.get_running_loop()
    wait = functools.partial(wait_without_reaping, pid, platform, kernel)
    if sys.platform == "linux" and platform == "linux":
        try:
            fd = os.pidfd_open(pid)
        except OSError:  # a sandbox may forbid it, and an old kernel lacks it
            return _watch_in_thread(loop, wait, pid, on_exit)
        return _watch_pidfd(loop, fd, on_exit)
    return _watch_in_thread(loop, wait, pid, on_exit)


def _watch_pidfd(
    loop: asyncio.AbstractEventLoop, fd: int, on_exit: Callable[[], None]
) -> Callable[[], None]:
    open_fds = [fd]

    def end() -> None:
        while open_fds:
            loop.remove_reader(fd)
            os.close(open_fds.pop())

    def ended() -> None:
        end()
        on_exit()

    loop.add_reader(fd, ended)
    return end


def _watch_in_thread(
    loop: asyncio.AbstractEventLoop,
    wait_for: Callable[[], None],
    pid: int,
    on_exit: Callable[[], None],
) -> Callable[[], None]:
    watching = [True]

    def ended() -> None:
        if watching:
            watching.clear()
            on_exit()

    def wait() -> None:
        wait_for()
        with contextlib.suppress(RuntimeError):  # the loop has been closed: nobody is interested
            loop.call_soon_threadsafe(ended)

    threading.Thread(target=wait, name=f"exit of {pid}", daemon=True).start()
    return watching.clear


def wait_without_reaping(pid: int, platform: str = sys.platform, kernel: Any = select) -> None:
    """Block until the process ``pid`` has ended, and leave it to its owner to reap."""
    told = _wait_by_kqueue(pid, kernel) if platform == "darwin" else _wait_by_waitid(pid)
    while not told and _runs(pid):
        time.sleep(_LOOK_SECONDS)  # nothing is left but to look


def _wait_by_waitid(pid: int) -> bool:
    """Whether it has told of the end: it does of an own child."""
    if sys.platform == "darwin":
        return False  # Python has none there
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    except ChildProcessError:  # another's, where the kernel has no pidfd either
        return False
    return True


def _wait_by_kqueue(pid: int, kernel: Any) -> bool:
    """Whether it has told of the end. Of one that has ended already it says ESRCH, as an error or,
    as there is room for one, in an event (kqueue(2), EV_ERROR)."""
    try:
        queue = kernel.kqueue()
    except OSError:  # no more files may be open
        return False
    event = kernel.kevent(
        pid, kernel.KQ_FILTER_PROC, kernel.KQ_EV_ADD | kernel.KQ_EV_ONESHOT, kernel.KQ_NOTE_EXIT
    )
    try:
        told = queue.control([event], 1, _LOOK_AGAIN_SECONDS)
        while not told and _runs(pid):
            told = queue.control(None, 1, _LOOK_AGAIN_SECONDS)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    finally:
        queue.close()
    return all(one.data == errno.ESRCH for one in told if one.flags & kernel.KQ_EV_ERROR)


def _runs(pid: int, process: Callable[[int], psutil.Process] = psutil.Process) -> bool:
    try:
        return process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
    except UNSEEN:  # just now: what has ended is told as such at the next look
        return True
