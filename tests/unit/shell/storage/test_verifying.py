"""Long readings that another node asks for, and may give up."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Iterator

import msgpack

from elasticd.checkpoints.peer import RUNNING_ANSWER, PeerStore
from elasticd.checkpoints.questions import Question, VerifyStored, WantShard
from elasticd.errors import OperationError
from elasticd.shell.storage.verifying import ReplicaReader, Verifications
from elasticd.types import JobId, NodeId, Stamp

ONE = VerifyStored(JobId("job"), 7, Stamp("ab"), 0, "one")
OTHER = VerifyStored(JobId("job"), 7, Stamp("ab"), 0, "other")


class Disk:
    """Reads a shard when it is let: the first time it is whole, later it is rotten."""

    def __init__(self) -> None:
        self.may, self.begun = threading.Event(), 0
        self.found = threading.Event()
        """It has read something, which is not told before it may."""
        self._found: Iterator[bytes] = iter((b"whole", b"rotten", b"rotten"))

    def read(self, question: VerifyStored) -> bytes:
        self.begun += 1
        found = next(self._found)
        self.found.set()
        self.may.wait(20)
        return found

    def let(self) -> None:
        """What was begun comes first, also if its thread is slow."""
        assert self.found.wait(20)
        self.may.set()


def test_what_somebody_has_given_up_does_not_answer_who_asks_later() -> None:
    async def story() -> None:
        disk = Disk()
        served = Verifications(disk.read, answer_seconds=0.0)
        assert await served.answer(ONE) == RUNNING_ANSWER
        disk.let()
        served.answer_seconds = 20.0
        assert await served.answer(OTHER) == b"rotten"
        assert disk.begun == 2
        assert await served.answer(ONE) == b"whole", "the first may ask again yet"
        assert served.open == 0

    asyncio.run(story())


def test_what_nobody_asks_for_again_is_forgotten() -> None:
    async def story() -> None:
        disk = Disk()
        served = Verifications(disk.read, answer_seconds=0.0, forget_seconds=0.0)
        assert await served.answer(ONE) == RUNNING_ANSWER
        disk.let()
        later = asyncio.Event()
        asyncio.get_running_loop().call_later(0.001, later.set)
        await later.wait()  # timers of the loop come in their order
        assert served.open == 0
        served.answer_seconds = 20.0
        assert await served.answer(ONE) == b"rotten"

    asyncio.run(story())


def test_each_verification_asks_under_a_name_of_its_own() -> None:
    asked: list[Question | WantShard] = []

    def call(question: Question | WantShard, sink: int) -> int:
        asked.append(question)
        raise OperationError("gone")

    store = PeerStore(NodeId("b"), call)
    for _ in range(2):
        with contextlib.suppress(OperationError):
            store.verify(ONE.job, ONE.step, ONE.stamp, 0)
    first, second = asked
    assert isinstance(first, VerifyStored) and isinstance(second, VerifyStored)
    assert first.asked and first != second


def test_one_that_is_broken_off_asks_no_more_and_keeps_no_thread() -> None:
    """Eight of them would otherwise hold up every command about checkpoints."""

    async def story() -> None:
        asked = asyncio.Event()
        gone: list[str] = []

        async def hangs(node: NodeId, question: VerifyStored, sink: int) -> int:
            os.write(sink, b"")
            asked.set()
            try:
                await asyncio.Event().wait()
            finally:
                gone.append(question.asked)
            return 0

        reader = ReplicaReader(NodeId("a"), _nothing, hangs)
        threads = threading.active_count()
        work = asyncio.create_task(reader.verify(NodeId("b"), ONE.job, ONE.step, ONE.stamp, 0))
        await asyncio.wait_for(asked.wait(), 5)
        assert threading.active_count() <= threads  # others may end meanwhile
        work.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await work
        assert work.cancelled() and len(gone) == 1

    asyncio.run(story())


async def _nothing(question: VerifyStored) -> bytes:
    raise AssertionError("that is another node's")


def test_a_peer_that_still_reads_is_asked_again_under_the_same_name() -> None:
    async def story() -> None:
        asked: list[VerifyStored] = []

        async def answers(node: NodeId, question: VerifyStored, sink: int) -> int:
            asked.append(question)
            found = {"problems": [["shard", 0, "rotten"]]}
            done: bytes = msgpack.packb(found)
            return os.write(sink, RUNNING_ANSWER if len(asked) < 3 else done)

        reader = ReplicaReader(NodeId("a"), _nothing, answers)
        problems = await reader.verify(NodeId("b"), ONE.job, ONE.step, ONE.stamp, 0)
        assert [problem.reason for problem in problems] == ["rotten"]
        assert len(asked) == 3 and len(set(asked)) == 1

    asyncio.run(story())
