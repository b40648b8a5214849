"""A folder of which the kernel tells what changes in it.

To watch a folder is to walk it, and to end that is to wait for threads. Both are done in one thread
that does nothing else: in the order in which they are asked for, and never in the loop's.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

from watchdog.events import FileSystemEvent, FileSystemEventHandler
from watchdog.observers import Observer

CLOSE_SECONDS = 5.0
"""A disk that hangs is waited for no longer."""
_READING = ("opened", "closed_no_write")


class FolderWatch:
    """To be used in a running loop, and once."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self._ended: Future[None] | None = None

    async def start(
        self, folder: Path, handler: FileSystemEventHandler, *, recursive: bool
    ) -> None:
        """``handler`` is told, in a thread of its own, of what changes after the return.

        Raises:
            OSError: it can't be watched: the system has a limit of that.
        """
        started = _begun()
        self._ended = _begun()
        work = (folder, handler, recursive, started, self._ended)
        name = f"watch of {folder.name}"
        threading.Thread(target=self._watch, args=work, name=name, daemon=True).start()
        await asyncio.wrap_future(started)

    async def close(self) -> None:
        """When it returns nothing is told any more, unless the disk hangs. Also for one that was
        never started, or whose start is still under way."""
        self._over.set()
        if self._ended is not None:
            await asyncio.wait([asyncio.wrap_future(self._ended)], timeout=CLOSE_SECONDS)

    def _watch(
        self,
        folder: Path,
        handler: FileSystemEventHandler,
        recursive: bool,
        started: Future[None],
        ended: Future[None],
    ) -> None:
        try:
            observer = Observer()
            observer.schedule(handler, str(folder), recursive=recursive)
            observer.start()
        except BaseException as error:
            started.set_exception(error)
        else:
            started.set_result(None)
            self._over.wait()
            observer.stop()
            observer.join()
        finally:
            ended.set_result(None)


class Hints(FileSystemEventHandler):
    """Wakes the loop from the observer's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, wake: Callable[[], None]) -> None:
        self._loop = loop
        self._wake = wake

    def on_any_event(self, event: FileSystemEvent) -> None:
        if event.event_type not in _READING:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._wake)


def _begun() -> Future[None]:
    """One that who waits for it can't cancel: the thread sets it all the same."""
    future: Future[None] = Future()
    future.set_running_or_notify_cancel()
    return future
