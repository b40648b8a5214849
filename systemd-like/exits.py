"""Learning of a child's exit from the kernel, in milliseconds and without polling.

Linux: a pidfd becomes readable when the process has ended. macOS: kqueue's NOTE_EXIT, waited for in
a thread. Neither reaps: the pid stays taken until its owner calls ``wait``, so a signal sent
between the two can't reach a stranger.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import sys
import threading
from collections.abc import Callable


def watch_exit(pid: int, on_exit: Callable[[], None]) -> Callable[[], None]:
    """Call ``on_exit`` once, in the running loop, when the child ``pid`` has ended.

    ``pid`` is an unreaped child of this process. Returns a function that ends the watch.
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
    """Block until the child ``pid`` has ended, and leave it to its owner to reap."""
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
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
