"""Writes to a disk that nobody has to wait for, done one after the other beside the loop.

A write of a few bytes takes a tenth of a millisecond, and a thousand times as long beside others
that sync. Who has to know that something is written, or is about to read it, waits in a thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
Work = Callable[[], Any]
Aside = Callable[[Callable[[], object], Callable[[OSError | None], None]], None]
"""Does the first, and has the second called with its error, where it was called itself."""

MAX_WAITING = 10_000
"""Where so many writes wait, who has another one waits, too."""


def at_once(work: Callable[[], object], then: Callable[[OSError | None], None]) -> None:
    """An :data:`Aside` for who has no loop."""
    try:
        work()
    except OSError as error:
        then(error)
    else:
        then(None)


class EventDisk(Protocol):
    """Does what it is given, in this order."""

    def do(self, work: Callable[[], T], then: Callable[[T], object] | None = None) -> None:
        """``then`` gets what comes of it, in the loop."""

    def aside(self, work: Work, then: Callable[[OSError | None], None]) -> None:
        """An :data:`Aside` for ``work`` that does :meth:`do`:
        nothing waits for this, and ``then`` has its place in the order."""

    def settled(self) -> None:
        """Blocks until what was given so far is done."""

    async def flushed(self, seconds: float) -> None:
        """Waits for that, but not for longer."""


class AtOnce:
    """For who has no loop: raises what the work raises."""

    def do(self, work: Callable[[], T], then: Callable[[T], object] | None = None) -> None:
        found = work()
        if then is not None:
            then(found)

    def aside(self, work: Work, then: Callable[[OSError | None], None]) -> None:
        at_once(work, then)

    def settled(self) -> None:
        """It is."""

    async def flushed(self, seconds: float) -> None:
        """It is."""


class InOrder:
    """In one thread, which lasts as long as the process. To be made in the running loop."""

    def __init__(self, name: str, failed: Callable[[OSError], object] | None = None) -> None:
        """``failed`` is told of the first failure, in the loop, and nothing is done any more: what
        comes later might hide what is missing. None: each work stands for itself, and tells its
        failures; the loop hears of one that doesn't."""
        self._loop = asyncio.get_running_loop()
        self._failed = failed
        self._waiting: queue.Queue[Work | Future[None]] = queue.Queue(MAX_WAITING)
        self._name = name
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def do(self, work: Callable[[], T], then: Callable[[T], object] | None = None) -> None:
        def both() -> None:
            found = work()
            if then is not None:
                self.tell(then, found)

        self._waiting.put(both)

    async def done(self, work: Callable[[], T]) -> T:
        """What comes of it. Raises what it raises; the next is done all the same."""
        outcome: Future[T] = Future()

        def kept() -> None:
            try:
                outcome.set_result(work())
            except Exception as error:
                outcome.set_exception(error)

        self.do(kept)
        return await asyncio.shield(asyncio.wrap_future(outcome))

    def aside(self, work: Work, then: Callable[[OSError | None], None]) -> None:
        def told(error: OSError | None) -> None:
            self.do(lambda: then(error))

        name = f"{self._name} aside"
        threading.Thread(target=at_once, args=(work, told), name=name, daemon=True).start()

    def settled(self) -> None:
        mark: Future[None] = Future()
        self._waiting.put(mark)
        mark.result()

    async def flushed(self, seconds: float) -> None:
        """As :class:`EventDisk` has it: a disk that hangs keeps nobody from ending."""
        mark: Future[None] = Future()
        with contextlib.suppress(queue.Full):
            self._waiting.put_nowait(mark)
            await asyncio.wait([asyncio.wrap_future(mark)], timeout=seconds)

    def _run(self) -> None:
        broken = False
        while True:
            work = self._waiting.get()
            if isinstance(work, Future):
                work.set_result(None)
            elif not broken:
                try:
                    work()
                except OSError as error:
                    broken = self._failed is not None
                    self.tell(self._failed or _raise, error)
                except Exception as error:  # a defect: the loop is to hear of it
                    broken = self._failed is not None
                    self.tell(_raise, error)

    def tell(self, call: Callable[[T], object], found: T) -> None:
        """For work that has found something before it is done: call this with it, in the loop."""
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(call, found)


def _raise(error: Exception) -> None:
    raise error
