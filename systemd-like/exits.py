"""Learning of a process's exit from the kernel, in milliseconds and without polling.

Linux: a pidfd becomes readable when the process has ended. macOS: kqueue's NOTE_EXIT, waited for in
a thread. Both work for any process of the account, also for one that another process started.
Neither reaps: the pid of an own child stays taken until its owner calls ``wait``, so a signal sent
between the two can't reach a stranger.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import sys
import threading
import time
from collections.abc import Callable

import psutil

_LOOK_SECONDS = 0.05


def watch_exit(pid: int, on_exit: Callable[[], None]) -> Callable[[], None]:
    """Call ``on_exit`` once, in the running loop, when the process ``pid`` has ended.

    Returns a function that ends the watch.
    """
    loop = asyncio.get_running_loop()
    if sys.platform == "linux":
        try:
            fd = os.pidfd_open(pid)
        except OSError:  # a sandbox may forbid it, and an old kernel lacks it
            return _watch_in_thread(loop, pid, on_exit)
        return _watch_pidfd(loop, fd, on_exit)
    return _watch_in_thread(loop, pid, on_exit)


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
    loop: asyncio.AbstractEventLoop, pid: int, on_exit: Callable[[], None]
) -> Callable[[], None]:
    watching = [True]

    def ended() -> None:
        if watching:
            watching.clear()
            on_exit()

    def wait() -> None:
        wait_without_reaping(pid)
        with contextlib.suppress(RuntimeError):  # the loop has been closed: nobody is interested
            loop.call_soon_threadsafe(ended)

    threading.Thread(target=wait, name=f"exit of {pid}", daemon=True).start()
    return watching.clear


def wait_without_reaping(pid: int) -> None:
    """Block until the process ``pid`` has ended, and leave it to its owner to reap."""
    if sys.platform == "darwin":
        kqueue = select.kqueue()
        event = select.kevent(
            pid, select.KQ_FILTER_PROC, select.KQ_EV_ADD | select.KQ_EV_ONESHOT, select.KQ_NOTE_EXIT
        )
        try:
            # Registering for a process that has ended already fails with ESRCH.
            with contextlib.suppress(ProcessLookupError):
                kqueue.control([event], 1, None)
        finally:
            kqueue.close()
    else:
        try:
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        except ChildProcessError:
            # Another's, where the kernel has no pidfd either: nothing is left but to look.
            while _runs(pid):
                time.sleep(_LOOK_SECONDS)


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
