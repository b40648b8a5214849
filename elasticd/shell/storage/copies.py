"""Copies of stored shards from peers: to have what is missing, and to replace what is rotten."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import structlog

from elasticd.checkpoints.disk import LOCAL_DISK, write_beside
from elasticd.checkpoints.integrity import verified
from elasticd.checkpoints.manifest import Manifest
from elasticd.checkpoints.port import Problem
from elasticd.checkpoints.questions import WantShard
from elasticd.checkpoints.store import LocalStore
from elasticd.core.words.bulk import DoubtShard
from elasticd.errors import DiskError, ElasticdError, OperationError, RotError, TakenError
from elasticd.shell.network.neighbours import Neighbours
from elasticd.shell.storage.namelessfile import nameless_file, slices
from elasticd.shell.storage.pins import Pins
from elasticd.types import JobId, NodeId, Stamp

log = structlog.get_logger(__name__)

Tell = Callable[[str, JobId, str, dict[str, Any]], None]
"""Write an event: kind, job, reason, its own fields."""


class NoCopyError(OperationError):
    """No peer gave a shard as it should be. ``rotten`` says which shard who gave otherwise."""

    def __init__(self, text: str, rotten: tuple[tuple[int, NodeId], ...]) -> None:
        super().__init__(text)
        self.rotten = rotten


def descriptor(
    store: LocalStore, job: JobId, step: int, stamp: Stamp, index: int, count: int
) -> int:
    """Of a shard that is here, the caller's to close. Blocks."""
    with store.open_shard(job, step, stamp, index, count) as file:
        return os.dup(file.fileno())


class Copies:
    """Brings shards into one node's store."""

    def __init__(self, store: LocalStore, neighbours: Neighbours, pins: Pins, tell: Tell) -> None:
        self._store, self._neighbours, self._pins, self._tell = store, neighbours, pins, tell
        self._pulls = WeakValueDictionary[tuple[JobId, int, Stamp, int], asyncio.Lock]()
        """One pull of a checkpoint at a time."""

    async def repair(
        self,
        found: Manifest,
        wanted: range,
        sources: tuple[tuple[NodeId, ...], ...],
        *,
        trust: bool = False,
    ) -> None:
        """Have the ``wanted`` shards here, right in every byte: what isn't comes from peers. With
        ``trust`` files of the right size are taken for right. What is rotten and can't be replaced
        is set aside, so that this node is no holder of it any more.

        Raises:
            OperationError: naming the shard that nobody has.
        """

        async def check(index: int) -> list[Problem]:
            return await asyncio.to_thread(
                self._store.verify, found.job, found.step, found.stamp, index
            )

        held = self._store.held(found.job, found.step, found.stamp)
        here = [index for index in wanted if index in held and not trust]
        reports = await asyncio.gather(*(check(index) for index in here))
        wrong = {p.shard: p for report in reports for p in report if p.shard is not None}
        missing = [i for i in wanted if i not in held]

        async def have(index: int) -> None:
            try:
                await self._pull_one(
                    found.job, found.step, found.stamp, found.count, index,
                    found.shards[index].digest, sources[index],
                )  # fmt: skip
            except OperationError:
                if index in wrong and wrong[index].rotten:
                    await asyncio.to_thread(self._store.set_aside, wrong[index])
                raise

        results = await asyncio.gather(*map(have, (*wrong, *missing)), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        own = found.held_by(self._neighbours.me)
        lost = {index: "was missing" for index in missing if index in own}
        for index, reason in sorted({**lost, **{i: p.reason for i, p in wrong.items()}}.items()):
            self.tell_repaired(found, index, reason)

    async def all_of(
        self, found: Manifest, sources: tuple[tuple[NodeId, ...], ...], *, trust: bool
    ) -> list[int]:
        """Descriptors of all shards in the order of numbers, the caller's to close; they are had
        here first, as :meth:`repair` does. If another world has stored the same state here, cut
        otherwise, that stays, and peers' copies are in nameless files.

        Raises:
            OperationError: naming the shard that nobody has.
        """
        fds: list[int] = []
        try:
            if not await asyncio.to_thread(self._store.takes, found):
                for index in range(found.count):
                    fds.append(await self._borrow(found, index, sources[index]))
                return fds
            with self._pins.held(found.job, found.step, found.stamp):
                await self.repair(found, range(found.count), sources, trust=trust)
                for index in range(found.count):
                    name = (found.job, found.step, found.stamp, index, found.count)
                    fds.append(await asyncio.to_thread(descriptor, self._store, *name))
        except BaseException:
            for fd in fds:
                os.close(fd)
            raise
        return fds

    async def _borrow(self, found: Manifest, index: int, sources: tuple[NodeId, ...]) -> int:
        digest, lent = found.shards[index].digest, list[int]()

        def keep(fd: int) -> None:
            for _ in verified(slices(fd), digest, f"shard {index} of step {found.step}"):
                pass
            os.lseek(fd, 0, os.SEEK_SET)
            lent.append(os.dup(fd))

        key = (found.job, found.step, found.stamp, found.count)
        await self._from_peers(*key, index, sources, keep)
        return lent.pop()

    def tell_repaired(self, found: Manifest, index: int, reason: str) -> None:
        """Write the event."""
        self._tell(
            "checkpoint_repaired",
            found.job,
            f"shard {index} of step {found.step} {reason}; replaced from a peer",
            {"step": found.step, "shard": index, "cause": reason},
        )

    async def replace(self, found: Manifest, index: int, sources: tuple[NodeId, ...]) -> None:
        """Replace a shard of a final checkpoint by a peer's copy; its named holders first.

        Raises:
            OperationError: none of ``sources`` has it.
            StateError: this node's disk refuses; or (GoingError) the checkpoint is being removed.
        """
        order = sorted(sources, key=lambda node: node not in found.holders[index])
        digest = found.shards[index].digest
        key = (found.job, found.step, found.stamp)
        with self._pins.held(*key):
            await self._pull_one(*key, found.count, index, digest, tuple(order))

    async def pull_to(
        self, path: Path, found: Manifest, index: int, sources: tuple[NodeId, ...]
    ) -> None:
        """Write a peer's copy of a shard, verified, to ``path``.

        Raises:
            OperationError: no source has it.
        """
        digest = found.shards[index].digest

        def keep(fd: int) -> None:
            write_beside(LOCAL_DISK, path, verified(slices(fd), digest, str(path)))

        await self._from_peers(
            found.job, found.step, found.stamp, found.count, index, sources, keep
        )

    async def pull(
        self,
        job: JobId,
        step: int,
        stamp: Stamp,
        count: int,
        shards: tuple[tuple[int, int, str], ...],
        sources: tuple[tuple[NodeId, ...], ...],
    ) -> None:
        """Have these shards here, each with its digest. What the trainer here wrote may be of
        another state: only its content tells. A leader that asks again while they come has them
        fetched once."""
        turn = self._pulls.setdefault((job, step, stamp, count), asyncio.Lock())
        async with turn:
            here = self._store.held(job, step, stamp, count)

            async def lacks(index: int, digest: str) -> bool:
                where = (job, step, stamp, index, count)
                return index not in here or not await asyncio.to_thread(
                    self._store.is_right, *where, digest
                )

            wanted = [row for row in shards if await lacks(row[0], row[2])]
            await asyncio.gather(
                *(
                    self._pull_one(job, step, stamp, count, index, digest, sources[index])
                    for index, _, digest in wanted
                )
            )

    async def _pull_one(
        self,
        job: JobId,
        step: int,
        stamp: Stamp,
        count: int,
        index: int,
        digest: str,
        sources: tuple[NodeId, ...],
    ) -> None:
        def keep(fd: int) -> None:
            self._store.put_shard(job, step, stamp, index, count, slices(fd), digest)

        await self._from_peers(job, step, stamp, count, index, sources, keep)

    async def _from_peers(
        self,
        job: JobId,
        step: int,
        stamp: Stamp,
        count: int,
        index: int,
        sources: tuple[NodeId, ...],
        keep: Callable[[int], None],
    ) -> None:
        """Give ``keep``, in a thread, a copy of a shard, the next source's if it refuses one.

        Raises:
            NoCopyError: no source has it, or none that is right.
            DiskError: this node's disk refuses.
            TakenError: it has the state in other files.
        """
        wanted = WantShard(job, step, stamp, index, count)
        reasons, rotten = [], []
        for node in sources:
            if node == self._neighbours.me:
                continue
            fd = nameless_file()
            try:
                await self._neighbours.fetch(node, wanted, fd)
                os.lseek(fd, 0, os.SEEK_SET)
                await asyncio.to_thread(keep, fd)
                return
            except (DiskError, TakenError):
                raise  # ours: another source changes nothing
            except RotError as error:
                reasons.append(f"{node}: {error}")
                rotten.append((index, node))
                await self._doubt(node, DoubtShard(job, step, stamp, index, count))
            except (ElasticdError, OSError) as error:
                reasons.append(f"{node}: {error}")
            finally:
                os.close(fd)
        why = "; ".join(reasons) or "no source"
        raise NoCopyError(f"shard {index} of step {step} could not be had: {why}", tuple(rotten))

    async def _doubt(self, node: NodeId, doubt: DoubtShard) -> None:
        """Have a peer look at the shard that it sent, now and not when its scrubber comes there."""
        answer = nameless_file()
        try:
            await self._neighbours.fetch(node, doubt, answer)
        except OperationError as error:
            log.info("a peer was not told of a rotten shard", node=node, reason=str(error))
        finally:
            os.close(answer)
