"""Tasks that nobody waits for.

What ends one that nobody has thought of is told to the event loop, in plain words: the daemon logs
and counts it, and ``status`` and ``doctor`` show it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tenacity

from elasticd.errors import ElasticdError
from elasticd.settings.diskroom import refusal

FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 30.0
"""Before what has failed is begun again."""
SHOWN_CHARS = 300

Work = Coroutine[Any, Any, None]


class Tasks:
    """Tasks that are running."""

    def __init__(self, what: str) -> None:
        """``what`` each of them does, for people: "serving a peer"."""
        self._what = what
        self._running: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._running)

    def start(self, work: Work, what: str = "") -> asyncio.Task[None]:
        """Do it once. ``what`` it is, if it is something of its own."""
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(lambda ended: self._ended(ended, what or self._what))
        return task

    def keep(self, what: str, work: Callable[[], Work]) -> asyncio.Task[None]:
        """Do it as long as the daemon lives: when it fails it is begun again, sooner at first. One
        that returns has done what it had to."""

        async def attempt() -> None:
            await work()

        def told(state: tenacity.RetryCallState) -> None:
            assert state.outcome is not None
            if (error := state.outcome.exception()) is not None:
                tell(f"{what} failed, and is begun again", error)

        again = tenacity.AsyncRetrying(
            wait=tenacity.wait_exponential(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS),
            before_sleep=told,
        )
        return self.start(again(attempt), what)

    def keep_all(self, works: Mapping[str, Callable[[], Work]]) -> None:
        for what, work in works.items():
            self.keep(what, work)

    async def ended(self) -> None:
        """Returns when none runs any more."""
        await asyncio.gather(*self._running, return_exceptions=True)

    def stop(self) -> None:
        """End what still runs, and don't wait for it."""
        for task in tuple(self._running):
            task.cancel()

    async def cancel(self) -> None:
        """End what still runs."""
        await cancel(tuple(self._running))

    def _ended(self, task: asyncio.Task[None], what: str) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            tell(f"{what} failed", error, task)


def tell(sentence: str, error: BaseException, task: asyncio.Task[Any] | None = None) -> None:
    """Something failed that nobody waits for; in the loop's thread."""
    context = {"message": sentence, "exception": error}
    if task is not None:
        context["task"] = task
    asyncio.get_running_loop().call_exception_handler(context)


def reason(what: str, error: Exception) -> str:
    """Why something failed, for who waits to hear how it went; what nobody has thought of is told
    to the loop, too."""
    if isinstance(error, OSError):
        return refusal(error)
    if isinstance(error, ElasticdError):
        return str(error)
    tell(f"{what} failed", error)
    return worded(error)


async def cancel(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Cancel tasks and wait until they have ended, however that was."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@dataclass(slots=True)
class FailureCount:
    """What was told to a daemon's loop since the start."""

    count: int = 0
    last: str | None = None

    def add(self, sentence: str, error: BaseException | None) -> None:
        self.count += 1
        self.last = sentence if error is None else f"{sentence}: {worded(error)}"
        self.last = self.last[:SHOWN_CHARS]

    def plain(self) -> dict[str, Any]:
        """As ``status --json`` has it."""
        return {"failures": self.count, "last_failure": self.last}


def worded(error: BaseException) -> str:
    """With the path, which an OSError's repr leaves out; of a group what is in it."""
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(map(worded, error.exceptions))
    return f"{type(error).__name__}: {error}"
