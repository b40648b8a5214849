"""A disk that hangs, and a loop that has to turn meanwhile."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass
class HungDisk:
    """Keeps whoever comes until it is let go. The loop itself would wait for ever: it fails."""

    came: threading.Event = field(default_factory=threading.Event)
    go: threading.Event = field(default_factory=threading.Event)
    loop_thread: int = field(default_factory=threading.get_ident)

    def wait(self) -> None:
        """What each call of the disk does first."""
        if not self.go.is_set():
            assert threading.get_ident() != self.loop_thread, "the loop waits for the disk"
        self.came.set()
        assert self.go.wait(10)

    def slow(self, work: Callable[..., T]) -> Callable[..., T]:
        """That, on this disk."""

        def wrapped(*args: Any, **named: Any) -> T:
            self.wait()
            return work(*args, **named)

        return wrapped

    async def turned(self, work: Coroutine[Any, Any, T]) -> T:
        """What ``work`` returns, for which the loop turned while the disk hung."""
        task = asyncio.create_task(work)
        while not self.came.is_set() and not task.done():  # noqa: ASYNC110  a heartbeat each
            await asyncio.sleep(0)
        assert not task.done(), f"it did not come to the disk: {task}"
        self.go.set()
        return await task

    async def beside(self, work: Coroutine[Any, Any, T]) -> T:
        """What ``work`` returns while somebody else waits for the disk."""
        while not self.came.is_set():  # noqa: ASYNC110  a heartbeat each
            await asyncio.sleep(0)
        found = await work
        self.go.set()
        return found
