"""What has to be known before the end of a child is told: whether this node's disk is at fault."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path

from elasticd.shell.children.server import Child
from elasticd.shell.storage.durable import unwritable
from elasticd.shell.tasks import Tasks, tell

PROBE_SECONDS = 1.0
"""A disk that has not answered by then has not refused; the end is told without it."""

Over = Callable[[Child, int | None], None]


class Endings:
    """Tells the ends of children in their order. Those that failed wait for a look at the disk."""

    def __init__(
        self,
        home: Path,
        over: Over,
        broken: Callable[[OSError], None],
        reaped: Callable[[Child], None],
        probe: Callable[[Path], OSError | None] = unwritable,
    ) -> None:
        """``over`` is told each end, ``broken`` before it that the disk refuses. ``reaped`` is
        told each at once."""
        self._home, self._over, self._broken, self._probe = home, over, broken, probe
        self._reaped = reaped
        self._turn = asyncio.Lock()
        self._waiting = Tasks("telling that a process has ended")
        self._look: asyncio.Future[OSError | None] | None = None

    def add(self, child: Child, status: int | None) -> None:
        """A child has ended, as :attr:`Child.status` says."""
        self._reaped(child)
        if not self._waiting and not _may_be_the_disk(status):
            self._over(child, status)
            return
        self._waiting.start(self._tell(child, status))

    async def _tell(self, child: Child, status: int | None) -> None:
        async with self._turn:
            try:
                if _may_be_the_disk(status) and (error := await self._refusal()) is not None:
                    # A script that failed has most likely failed of that, and only here.
                    self._broken(error)
            except Exception as error:
                tell("looking whether the disk refuses failed", error)
            self._over(child, status)

    async def _refusal(self) -> OSError | None:
        if self._look is not None and not self._look.done():
            return None  # it hangs: one thread waits for it, and no more
        look = asyncio.ensure_future(asyncio.to_thread(self._probe, self._home))
        self._look = look
        done, _ = await asyncio.wait([look], timeout=PROBE_SECONDS)
        return look.result() if done else None


def _may_be_the_disk(status: int | None) -> bool:
    """Whether a child failed by itself; SIGKILL comes from others."""
    return bool(status) and status != -signal.SIGKILL
