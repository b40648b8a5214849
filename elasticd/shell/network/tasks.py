"""The tasks of connections, which nobody waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any


class Tasks:
    """Tasks that are running; one that fails is told to the event loop."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._running)

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    async def ended(self) -> None:
        """Returns when none runs any more."""
        await asyncio.gather(*self._running, return_exceptions=True)

    async def cancel(self) -> None:
        """End what still runs."""
        await cancel(tuple(self._running))

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            context = {"message": "a connection's task failed", "exception": error, "task": task}
            task.get_loop().call_exception_handler(context)


async def cancel(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Cancel tasks and wait until they have ended, however that was."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
