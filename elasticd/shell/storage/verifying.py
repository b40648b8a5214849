"""Readings of stored shards: a node asks for one, and asks again while it goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial

from elasticd.checkpoints import peer
from elasticd.checkpoints.port import Problem
from elasticd.checkpoints.questions import VerifyStored
from elasticd.shell.storage.namelessfile import filled
from elasticd.types import JobId, NodeId, Stamp

ANSWER_SECONDS = 10.0
"""After so long whoever asks is told that it goes on; reading may take longer than a peer waits for
the first byte."""
FORGET_SECONDS = 60.0
"""Who has not asked again for so long has given up."""


@dataclass(slots=True)
class _Reading:
    task: asyncio.Task[bytes]
    forget: asyncio.TimerHandle | None = None


@dataclass(slots=True)
class Verifications:
    """Each is answered once, to who has begun it: ``VerifyStored.asked`` tells them apart."""

    read: Callable[[VerifyStored], bytes]
    """Reads the shards, in a thread."""
    answer_seconds: float = ANSWER_SECONDS
    forget_seconds: float = FORGET_SECONDS
    _open: dict[VerifyStored, _Reading] = field(default_factory=dict)

    @property
    def open(self) -> int:
        """How many are not answered yet."""
        return len(self._open)

    async def answer(self, question: VerifyStored) -> bytes:
        """What was found, or :data:`elasticd.checkpoints.peer.RUNNING_ANSWER`.

        Raises:
            ProtocolError: no checkpoint is cut like that.
        """
        reading = self._open.get(question)
        if reading is None:
            task = asyncio.create_task(asyncio.to_thread(self.read, question))
            reading = self._open[question] = _Reading(task)
        if reading.forget is not None:
            reading.forget.cancel()
            reading.forget = None
        try:
            await asyncio.wait([reading.task], timeout=self.answer_seconds)
        finally:
            # Also if who asks hangs up.
            if not reading.task.done():
                self._forget_later(question, reading)
        if not reading.task.done():
            return peer.RUNNING_ANSWER
        self._open.pop(question, None)
        return reading.task.result()

    def _forget_later(self, question: VerifyStored, reading: _Reading) -> None:
        loop = asyncio.get_running_loop()
        reading.forget = loop.call_later(self.forget_seconds, self._forget, question, reading)

    def _forget(self, question: VerifyStored, reading: _Reading) -> None:
        if self._open.get(question) is reading:
            del self._open[question]
        # An error that nobody hears of is none.
        reading.task.add_done_callback(lambda task: task.cancelled() or task.exception())


@dataclass(frozen=True, slots=True)
class ReplicaReader:
    """Has replicas read where they are. Keeps no thread busy, and stops when it is cancelled."""

    me: NodeId
    own: Callable[[VerifyStored], Awaitable[bytes]]
    """Answers of this node (:meth:`Verifications.answer`)."""
    fetch: Callable[[NodeId, VerifyStored, int], Awaitable[object]]
    """Has a peer's answer written to a descriptor."""

    async def verify(
        self, node: NodeId, job: JobId, step: int, stamp: Stamp, index: int
    ) -> list[Problem]:
        """What is wrong with a shard on a node.

        Raises:
            OperationError: it can't be asked.
            StateError: it refuses.
            ProtocolError: what it says can't be.
        """
        question = peer.verification(job, step, stamp, index)
        while (found := peer.problems_of(node, await self._ask(node, question))) is None:
            pass  # Each answer takes seconds.
        return found

    async def _ask(self, node: NodeId, question: VerifyStored) -> bytes:
        if node == self.me:
            return await self.own(question)
        return await filled(partial(self.fetch, node, question))
