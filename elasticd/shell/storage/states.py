"""Bulk data between nodes: job archives, live states, checkpoint shards."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from pathlib import Path
from typing import assert_never

import structlog

from elasticd.checkpoints import peer
from elasticd.checkpoints.manifest import Manifest, Stored
from elasticd.checkpoints.port import Store
from elasticd.checkpoints.questions import Question, RemoveStored, VerifyStored, WantShard
from elasticd.checkpoints.retention import last_ones, overtaken
from elasticd.checkpoints.store import LocalStore
from elasticd.core.words import effects as e
from elasticd.core.words.bulk import (
    DoubtShard,
    KeepArchive,
    OfArchives,
    OfStates,
    WantArchive,
    WantArchiveList,
    WantLog,
    WantLogStart,
    WantState,
)
from elasticd.core.words.records import JobRecord, World
from elasticd.errors import (
    DiskError,
    ElasticdError,
    LackError,
    OperationError,
    StateError,
    TakenError,
)
from elasticd.ipc.frames import MAX_FRAME_FDS
from elasticd.shell.children.children import Children
from elasticd.shell.children.logspan import LogSpan
from elasticd.shell.network.neighbours import Neighbours
from elasticd.shell.network.retries import attempts
from elasticd.shell.storage.archives import Archives
from elasticd.shell.storage.copies import Copies, NoCopyError, Tell, descriptor
from elasticd.shell.storage.namelessfile import file_of
from elasticd.shell.storage.obtain import obtain
from elasticd.shell.storage.pins import Pins
from elasticd.shell.storage.retaining import Retaining
from elasticd.shell.storage.verifying import Verifications
from elasticd.shell.tasks import Tasks, reason
from elasticd.types import JobId, NodeId, Stamp

_LOG_BYTES = 256 * 1024

log = structlog.get_logger(__name__)


class States:
    """Performs the effects that move or store bulk data. Blocking disk work runs in threads."""

    def __init__(
        self,
        home: Path,
        neighbours: Neighbours,
        children: Children,
        record_of: Callable[[JobId], JobRecord],
        post: Callable[[e.Event], None],
        tell: Tell,
    ) -> None:
        """``record_of``: the record of a job that runs or ran here, or OperationError."""
        self._neighbours = neighbours
        self._children = children
        self._post = post
        self.tell = tell
        self._tasks = Tasks("bringing or storing a state")
        self._storing = asyncio.Lock()
        self._looking = asyncio.Lock()
        self.retaining = Retaining(record_of)
        self.pins = Pins()
        self.doubted: Callable[[Path], object] = lambda path: None
        """Told of a final shard that a peer could not use."""
        self.grown: Callable[[JobId, bool], object] = lambda job, known: None
        """Told when one more checkpoint is consistent; False: this node has only others."""
        root = home / "checkpoints"
        root.mkdir(parents=True, exist_ok=True)  # at a daemon's start, and never again
        self.store = LocalStore(root, neighbours.me)
        self.verifying = Verifications(partial(peer.answer, self.store))
        self.copies = Copies(self.store, neighbours, self.pins, tell)
        self.archives = Archives(home / "archives", neighbours, children.files.work_folder, post)

    def stored(self, written: Collection[JobId] = ()) -> dict[JobId, tuple[Stored, ...]]:
        """What is on disk, after sweeping away what a crash left of all jobs but ``written``."""
        for job in self.store.jobs():
            try:
                swept = self.store.sweep(job, written=written)
            except StateError as error:
                _tell_unswept(job, error)
                continue
            for problem in swept.problems:
                log.warning("checkpoint damaged", path=str(problem.path), reason=problem.reason)
        return {job: tuple(self.store.stored(job)) for job in self.store.jobs()}

    def sweep(self, job: JobId) -> None:
        """As :meth:`stored` does, beside other work; nobody may be writing to the job's folder."""
        self._tasks.start(self._sweep(job))

    async def _sweep(self, job: JobId) -> None:
        async with self._storing:
            try:
                await asyncio.to_thread(self.store.sweep, job, self.pins.all())
            except StateError as error:
                _tell_unswept(job, error)

    def close(self) -> None:
        self._tasks.stop()

    @property
    def me(self) -> NodeId:
        """This node."""
        return self._neighbours.me

    def store_of(self, node: NodeId) -> Store:
        """The checkpoints of a node, ours or a peer's. For threads, since a peer's blocks."""
        if node == self._neighbours.me:
            return _OwnStore(self)
        loop = asyncio.get_running_loop()

        def call(wanted: Question | WantShard, sink: int) -> int:
            # What the loop runs is cancelled with it, which ends this wait too.
            fetched = self._neighbours.fetch(node, wanted, sink)
            return asyncio.run_coroutine_threadsafe(_awaited(fetched), loop).result()

        return peer.PeerStore(node, call)

    def remove(self, job: JobId, step: int, stamp: Stamp) -> None:
        """Remove a checkpoint, in a thread; :meth:`changed` is to be called afterwards.

        Raises:
            StateError: it is in use, or no newer one of its line is here.
        """
        newest = last_ones(item.manifest for item in self.store.stored(job))
        if any((m.step, m.stamp) == (step, stamp) for m in newest):
            raise StateError(f"step {step} is the newest of its line here")
        if not self.remove_unused(job, step, stamp):
            raise StateError(f"step {step} is being read or written")

    def remove_unused(self, job: JobId, step: int, stamp: Stamp) -> bool:
        """Remove a checkpoint, in a thread; False: it is in use, and stays.

        Raises:
            StateError: the disk refuses.
        """
        with self.pins.removal(job, step, stamp) as free:
            if free:
                self.store.remove(job, step, stamp)
        return free

    async def changed(self, job: JobId) -> None:
        """What the node has of a job was changed by somebody else than its leader, who is told."""
        await self._post_stored(job, lambda stored: e.StoreChanged(job, stored))

    async def keep_manifest(self, made: Manifest) -> None:
        """Let a checkpoint be final here. StateError: a shard isn't, or the disk refuses."""
        async with self._storing:
            await asyncio.to_thread(self.store.commit, made)

    # --- effects ------------------------------------------------------------------

    def fetch_state(self, effect: e.FetchState) -> None:
        self._tasks.start(self._bring_state(effect))

    def prepare_state(self, effect: e.PrepareState) -> None:
        self._tasks.start(self._bring_ahead(effect))

    def ensure_archive(self, effect: e.EnsureArchive) -> None:
        self._tasks.start(self.archives.ensure(effect.job))

    def commit_manifest(self, effect: e.CommitManifest) -> None:
        self.retaining.told.store(effect.manifest)
        self._tasks.start(self._commit(effect))

    def prune_store(self, effect: e.PruneStore) -> None:
        self.retaining.told.tell(effect.job, effect.step)
        self._tasks.start(self._prune(effect))

    def fetch_shards(self, effect: e.FetchShards) -> None:
        self._tasks.start(self._bring_shards(effect))

    # --- bringing ------------------------------------------------------------------

    async def _bring_state(self, effect: e.FetchState) -> None:
        world = effect.world
        digests: tuple[str, ...] = ()
        try:
            if effect.wanted is None:
                fds, digests = await self._checkpoint_files(world, effect.careful)
            else:
                # A holder may not have entered the world yet, or a first world's state not be made.
                async for attempt in attempts():
                    with attempt:
                        fds = await obtain(self._neighbours, world.job, effect.wanted)
        except Exception as error:
            why = reason("bringing a state to a trainer", error)
            self._post(e.StateFailed(world.job, world.generation, why))
            return
        self._children.load(effect.trainer, world.generation, fds, digests)

    async def _bring_ahead(self, effect: e.PrepareState) -> None:
        try:
            fds = await obtain(self._neighbours, effect.job, effect.wanted)
        except Exception as error:
            why = reason("bringing a state ahead of a world", error)
            failed = e.PrepareFailed(effect.job, effect.generation, effect.serial, why)
            self._post(failed)
            return
        self._children.prepare(effect.trainer, effect.serial, fds)

    async def _checkpoint_files(
        self, world: World, careful: bool
    ) -> tuple[list[int], tuple[str, ...]]:
        """All shards of the world's checkpoint in the order of numbers, and their digests, which
        whoever reads them checks; ``careful``: they are read and repaired first."""
        found = world.manifest
        if found is None:
            raise StateError("the world names no checkpoint")
        if found.count > MAX_FRAME_FDS:
            raise StateError(f"{found.count} shards: a trainer takes at most {MAX_FRAME_FDS}")
        try:
            fds = await self.copies.all_of(found, world.holders, trust=not careful)
        except OperationError:
            await self.changed(found.job)  # what was set aside is nothing to restore from
            raise
        return fds, tuple(shard.digest for shard in found.shards)

    async def _bring_shards(self, effect: e.FetchShards) -> None:
        rotten: tuple[tuple[int, NodeId], ...] = ()
        try:
            await self.copies.pull(
                effect.job, effect.step, effect.stamp, effect.count, effect.shards, effect.sources
            )
        except Exception as error:
            ok, why = False, reason("bringing shards of a checkpoint", error)
            refused = isinstance(error, DiskError | TakenError)
            rotten = error.rotten if isinstance(error, NoCopyError) else rotten
        else:
            ok, why, refused = True, "", False
        await self._post_stored(
            effect.job,
            lambda stored: e.ShardsFetched(effect.report, ok, why, stored, refused, rotten),
        )

    async def _commit(self, effect: e.CommitManifest) -> None:
        made = effect.manifest
        ok, why, refused, lacks = True, "", False, False
        try:
            await self.keep_manifest(made)
        except Exception as error:
            ok, why = False, reason("storing a checkpoint", error)
            refused = isinstance(error, OSError | DiskError)
            lacks = isinstance(error, LackError)
            log.error("checkpoint not stored", step=made.step, reason=why)
        name = (made.job, made.lineage, made.step, made.stamp, made.count)
        await self._post_stored(
            made.job, lambda stored: e.ManifestKept(*name, ok, why, stored, refused, lacks)
        )

    async def _post_stored(
        self, job: JobId, event: Callable[[tuple[Stored, ...]], e.Event]
    ) -> None:
        """Look at what the store has of a job, and tell. One at a time, so that an older look is
        never told after a newer one."""
        async with self._looking:
            self._post(event(await _stored_of(self.store, job)))

    async def _prune(self, effect: e.PruneStore) -> None:
        known = True
        async with self._storing:
            try:
                known = await asyncio.to_thread(self._prune_now, effect)
            except (ElasticdError, OSError) as error:
                log.warning("old checkpoints stay", job=effect.job, reason=str(error))
        await self.changed(effect.job)
        self.grown(effect.job, known)

    def _prune_now(self, effect: e.PruneStore) -> bool:
        """Whether what is consistent is known here, or nothing else that it would make needless."""
        policies = self.retaining.policies(effect.job)
        known = self.store.manifests(effect.job)
        for old in overtaken(known, policies, effect.step, effect.lineage):
            self.remove_unused(old.job, old.step, old.stamp)
        newest = effect.step, effect.lineage
        is_known = any((m.step, m.lineage) == newest for m in known)
        return is_known or not self.store.stored(effect.job)

    # --- serving ------------------------------------------------------------------

    async def serve(self, wanted: OfStates) -> int:
        """A descriptor of what a peer asks for; the caller closes it.

        Raises:
            OperationError, StateError: it isn't here.
            ProtocolError: it can't be anywhere.
        """
        try:
            if isinstance(wanted, Question):
                return file_of(await self._answer(wanted))
            match wanted:
                case WantState(job):
                    return await self._children.export(job, wanted)
                case WantShard(job, step, stamp, index, count):
                    shard = (job, step, stamp, index, count)
                    return await asyncio.to_thread(descriptor, self.store, *shard)
                case DoubtShard(job, step, stamp, index, count):
                    self.doubted(self.store.final_path(job, step, stamp, index, count))
                    return file_of(b"")
                case WantLog(job, offset, counted):
                    self.retaining.record_of(job)  # a name that came from elsewhere
                    return file_of(await self.log_bytes(job, offset, _LOG_BYTES, counted))
                case WantLogStart(job, since, span=True, tail=tail, marks=marked):
                    self.retaining.record_of(job)
                    return file_of((await self.log_span(job, since, tail, marked)).encoded())
                case WantLogStart(job, since, counted):
                    self.retaining.record_of(job)
                    before = self._children.files.printed_before
                    return file_of(b"%d" % await asyncio.to_thread(before, job, since, counted))
                case WantArchive() | WantArchiveList() | KeepArchive():
                    return await _archives_answer(self.archives, wanted)
                case _:
                    assert_never(wanted)
        except OSError as error:
            raise OperationError(str(error)) from None

    async def _answer(self, question: Question) -> bytes:
        if isinstance(question, VerifyStored):
            return await self.verifying.answer(question)
        store = self.store_of(self._neighbours.me)
        answer = await asyncio.to_thread(peer.answer, store, question)
        if isinstance(question, RemoveStored):
            await self.changed(question.job)
        return answer

    async def log_bytes(self, job: JobId, offset: int, limit: int, counted: bool) -> bytes:
        """What the job's ranks printed on this node from ``offset`` on, at most ``limit`` bytes."""
        printed = self._children.files.printed
        return await asyncio.to_thread(printed, job, offset, limit, counted)

    async def log_span(
        self, job: JobId, since: float, tail: int | None, marked: bool = False
    ) -> LogSpan:
        """Where that part of it begins and ends which was printed after ``since``, or of that the
        last ``tail`` lines. ``marked``: with how long it was when."""
        return await asyncio.to_thread(self._children.files.span, job, since, tail, marked)


class _OwnStore(LocalStore):
    """This node's store, as others may use it: what is in use is not removed."""

    def __init__(self, states: States) -> None:
        super().__init__(states.store.root, states.me)
        self._states = states

    def remove(self, job: JobId, step: int, stamp: Stamp) -> None:
        self._states.remove(job, step, stamp)


def _tell_unswept(job: JobId, error: StateError) -> None:
    """The disk refuses, and keeps what a crash has left: that harms nothing."""
    log.warning("not swept", job=job, reason=str(error))


async def _stored_of(store: LocalStore, job: JobId) -> tuple[Stored, ...]:
    try:
        return tuple(await asyncio.to_thread(store.stored, job))
    except StateError as error:
        log.error("the store can't be read", reason=str(error))
        return ()


async def _awaited(fetched: Awaitable[int]) -> int:
    return await fetched


async def _archives_answer(archives: Archives, wanted: OfArchives) -> int:
    match wanted:
        case WantArchive(digest):
            return await asyncio.to_thread(archives.open, digest)
        case WantArchiveList():
            return file_of("\n".join(await archives.names()).encode())
        case KeepArchive(digest, source):
            await archives.keep_copy(digest, source)
            return file_of(b"")
        case _:
            assert_never(wanted)
