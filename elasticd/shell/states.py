"""Bulk data between nodes: job archives, live states, checkpoint shards."""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import structlog
import tenacity

from elasticd import archive
from elasticd.checkpoints import peer
from elasticd.checkpoints.disk import LOCAL_DISK, write_beside
from elasticd.checkpoints.integrity import verified
from elasticd.checkpoints.manifest import Manifest, Stored
from elasticd.checkpoints.port import Problem, Store
from elasticd.checkpoints.retention import (
    KeepBest,
    KeepEvery,
    KeepHours,
    KeepLast,
    Policy,
    prunable,
)
from elasticd.checkpoints.store import LocalStore
from elasticd.core import effects as e
from elasticd.core.messages import JobRecord, Wanted, World
from elasticd.errors import DiskError, ElasticdError, OperationError, ProtocolError, StateError
from elasticd.job import CheckpointTable, JobSpec
from elasticd.shell.durable import write_durable
from elasticd.shell.ranks import Ranks
from elasticd.types import JobId, NodeId, Stamp

Fetch = Callable[[str, dict[str, Any], int], Awaitable[int]]
"""Fetch what a request names from the daemon at an address into a descriptor; returns the bytes."""

_RETRY_SECONDS = 60.0
_LOG_BYTES = 256 * 1024
_MOST_PARTS = 4
"""A state is taken from at most so many holders at once."""
_VERIFY_SECONDS = 10.0
"""After so long a peer that asks for a verification is told that it goes on."""
Key = tuple[JobId, int, Stamp]

log = structlog.get_logger(__name__)


class States:
    """Performs the effects that move or store bulk data. Blocking disk work runs in threads."""

    def __init__(
        self,
        home: Path,
        me: NodeId,
        ranks: Ranks,
        fetch: Fetch,
        address_of: Callable[[NodeId], str | None],
        post: Callable[[e.Event], None],
    ) -> None:
        self._home = home
        self._me = me
        self._ranks = ranks
        self._fetch = fetch
        self._address_of = address_of
        self._post = post
        self._tasks: set[asyncio.Task[None]] = set()
        self._storing = asyncio.Lock()
        self._pins: Counter[Key] = Counter()
        self._verifying: dict[tuple[Key, int | None], asyncio.Task[bytes]] = {}
        self.store = LocalStore(home / "checkpoints", me)
        self._archives = home / "archives"
        self._archives.mkdir(parents=True, exist_ok=True)

    def stored(self) -> dict[JobId, tuple[Stored, ...]]:
        """What is on disk, after sweeping away what a crash left."""
        swept = self.store.sweep()
        for problem in swept.problems:
            log.warning("checkpoint damaged", path=str(problem.path), reason=problem.reason)
        return {job: tuple(self.store.stored(job)) for job in self.store.jobs()}

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()

    @property
    def me(self) -> NodeId:
        """This node."""
        return self._me

    def store_of(self, node: NodeId) -> Store:
        """The checkpoints of a node, ours or a peer's. For threads, since a peer's blocks."""
        if node == self._me:
            return _OwnStore(self)
        loop = asyncio.get_running_loop()

        def call(request: Mapping[str, Any], sink: int) -> int:
            # What the loop runs is cancelled with it, which ends this wait too.
            fetched = self._fetch(self._address(node), dict(request), sink)
            return asyncio.run_coroutine_threadsafe(_awaited(fetched), loop).result()

        return peer.PeerStore(node, call)

    @contextlib.contextmanager
    def pinned(self, job: JobId, step: int, stamp: Stamp) -> Iterator[None]:
        """Keep a checkpoint from being removed here in the meantime."""
        key = (job, step, stamp)
        self._pins[key] += 1
        try:
            yield
        finally:
            self._pins[key] -= 1

    def remove(self, job: JobId, step: int, stamp: Stamp) -> None:
        """Remove a checkpoint, in a thread.

        Raises:
            StateError: it is in use, or no newer one of its line is here.
        """
        if self._pins[job, step, stamp] > 0:
            raise StateError(f"step {step} is being read or written")
        known = [item.manifest for item in self.store.stored(job)]
        newest = [m for m in known if m not in prunable(known, [KeepLast(1)])]
        if any((m.step, m.stamp) == (step, stamp) for m in newest):
            raise StateError(f"step {step} is the newest of its line here")
        self.store.remove(job, step, stamp)

    # --- effects ------------------------------------------------------------------

    def fetch_state(self, effect: e.FetchState) -> None:
        self._run(self._bring_state(effect))

    def prepare_state(self, effect: e.PrepareState) -> None:
        self._run(self._bring_ahead(effect))

    def ensure_archive(self, effect: e.EnsureArchive) -> None:
        self._run(self._bring_archive(effect))

    def commit_manifest(self, effect: e.CommitManifest) -> None:
        self._run(self._commit(effect))

    def fetch_shards(self, effect: e.FetchShards) -> None:
        self._run(self._bring_shards(effect))

    def keep_archive(self, data: bytes, digest: str) -> None:
        """Store a submitted job's archive.

        Raises:
            ProtocolError: it is not what its digest says.
        """
        if archive.digest(data) != digest:
            raise ProtocolError("the archive's digest does not match")
        write_durable(self._archives / f"{digest}.tar", data)

    # --- bringing ------------------------------------------------------------------

    async def _bring_state(self, effect: e.FetchState) -> None:
        world = effect.world
        digests: tuple[str, ...] = ()
        try:
            if effect.wanted is None:
                fds, digests = await self._checkpoint_files(world, effect.careful)
            else:
                # A holder may not have entered the world yet, or a first world's state not be made.
                async for attempt in _attempts():
                    with attempt:
                        fds = await self._obtain(world.job, effect.wanted)
        except (ElasticdError, OSError) as error:
            self._post(e.StateFailed(world.job, world.generation, str(error)))
            return
        self._ranks.load(effect.trainer, world.generation, fds, digests)

    async def _bring_ahead(self, effect: e.PrepareState) -> None:
        try:
            fds = await self._obtain(effect.job, effect.wanted)
        except (ElasticdError, OSError) as error:
            failed = e.PrepareFailed(effect.job, effect.generation, effect.serial, str(error))
            self._post(failed)
            return
        self._ranks.prepare(effect.trainer, effect.serial, fds)

    async def _obtain(self, job: JobId, wanted: Wanted) -> list[int]:
        """Descriptors of files that together are a state, or the updates that lead to it: a part
        from each holder, all at once. Of a holder that fails, another one gives the part.

        Raises:
            OperationError: nobody has some part.
        """
        request = {
            "what": "state",
            "job": job,
            "step": wanted.point.step,
            "stamp": wanted.point.stamp,
            "since": wanted.since.stamp if wanted.since is not None else None,
        }
        parts = 1 if wanted.since is not None else min(len(wanted.holders), _MOST_PARTS)
        found = await asyncio.gather(
            *(
                self._one_of(
                    wanted.holders[part:] + wanted.holders[:part],
                    {**request, "part": part, "parts": parts},
                )
                for part in range(parts)
            ),
            return_exceptions=True,
        )
        fds = [each for each in found if isinstance(each, int)]
        for error in found:
            if isinstance(error, BaseException):
                for fd in fds:
                    os.close(fd)
                raise error
        return fds

    async def _one_of(self, holders: Sequence[NodeId], request: dict[str, Any]) -> int:
        """What the first of ``holders`` that has it answers to a request, in a nameless file."""
        reasons = []
        for node in holders:
            fd = nameless_file()
            try:
                await self._fetch(self._address(node), request, fd)
            except (ElasticdError, OSError) as error:
                os.close(fd)
                reasons.append(f"{node}: {error}")
            except BaseException:
                os.close(fd)
                raise
            else:
                os.lseek(fd, 0, os.SEEK_SET)
                return fd
        raise OperationError("; ".join(reasons))

    async def _checkpoint_files(
        self, world: World, careful: bool
    ) -> tuple[list[int], tuple[str, ...]]:
        """All shards of the world's checkpoint in the order of numbers, and their digests, which
        whoever reads them checks; ``careful``: they are read and repaired first."""
        found = world.manifest
        if found is None:
            raise StateError("the world names no checkpoint")
        with self.pinned(found.job, found.step, found.stamp):
            await self._repair(found, range(found.count), world.holders, trust=not careful)
            fds: list[int] = []
            try:
                for shard in found.shards:
                    with self.store.open_shard(
                        found.job, found.step, found.stamp, shard.index, found.count
                    ) as file:
                        fds.append(os.dup(file.fileno()))
            except BaseException:
                for fd in fds:
                    os.close(fd)
                raise
        return fds, tuple(shard.digest for shard in found.shards)

    async def _repair(
        self,
        found: Manifest,
        wanted: range,
        sources: tuple[tuple[NodeId, ...], ...],
        *,
        trust: bool = False,
    ) -> None:
        """Have the ``wanted`` shards here, right in every byte: what isn't comes from peers. With
        ``trust`` files of the right size are taken for right.

        Raises:
            OperationError: naming the shard that nobody has.
        """

        async def check(index: int) -> list[Problem]:
            return await asyncio.to_thread(
                self.store.verify, found.job, found.step, found.stamp, index
            )

        held = self.store.held(found.job, found.step, found.stamp)
        here = [index for index in wanted if index in held and not trust]
        reports = await asyncio.gather(*(check(index) for index in here))
        rotten = {p.shard: p.reason for report in reports for p in report if p.shard is not None}
        missing = [i for i in wanted if i not in held]
        await asyncio.gather(
            *(
                self._pull_one(
                    found.job, found.step, found.stamp, found.count, index,
                    found.shards[index].digest, sources[index],
                )
                for index in (*rotten, *missing)
            )
        )  # fmt: skip
        own = found.held_by(self._me)
        lost = {index: "was missing" for index in missing if index in own}
        for index, reason in sorted({**lost, **rotten}.items()):
            self.tell_repaired(found, index, reason)

    def tell_repaired(self, found: Manifest, index: int, reason: str) -> None:
        """Write the event."""
        self.tell(
            "checkpoint_repaired",
            found.job,
            f"shard {index} of step {found.step} {reason}; replaced from a peer",
            {"step": found.step, "shard": index, "cause": reason},
        )

    async def replace(self, found: Manifest, index: int, sources: tuple[NodeId, ...]) -> None:
        """Replace a shard of a final checkpoint by a peer's copy; its named holders first.

        Raises:
            OperationError: none of ``sources`` has it.
        """
        order = sorted(sources, key=lambda node: node not in found.holders[index])
        digest = found.shards[index].digest
        key = (found.job, found.step, found.stamp)
        with self.pinned(*key):
            await self._pull_one(*key, found.count, index, digest, tuple(order))

    tell: Callable[[str, JobId, str, dict[str, Any]], None] = staticmethod(
        lambda kind, job, reason, fields: None
    )
    """Write an event: kind, job, reason, its own fields."""

    async def pull_to(
        self, path: Path, found: Manifest, index: int, sources: tuple[NodeId, ...]
    ) -> None:
        """Write a peer's copy of a shard, verified, to ``path``.

        Raises:
            OperationError: no source has it.
        """
        digest = found.shards[index].digest

        def keep(fd: int) -> None:
            write_beside(LOCAL_DISK, path, verified(_slices(fd), digest, str(path)))

        await self._from_peers(
            found.job, found.step, found.stamp, found.count, index, sources, keep
        )

    async def _pull(
        self,
        job: JobId,
        step: int,
        stamp: Stamp,
        count: int,
        shards: tuple[tuple[int, int, str], ...],
        sources: tuple[tuple[NodeId, ...], ...],
    ) -> None:
        held = self.store.held(job, step, stamp, count)
        wanted = [row for row in shards if row[0] not in held]
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
            self.store.put_shard(job, step, stamp, index, count, _slices(fd), digest)

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
            OperationError: no source has it, or none that is right.
            DiskError: this node's disk refuses.
        """
        request = {
            "what": "shard",
            "job": job,
            "step": step,
            "stamp": stamp,
            "index": index,
            "count": count,
        }
        reasons = []
        for node in sources:
            if node == self._me:
                continue
            fd = nameless_file()
            try:
                await self._fetch(self._address(node), request, fd)
                os.lseek(fd, 0, os.SEEK_SET)
                await asyncio.to_thread(keep, fd)
                return
            except DiskError:
                raise  # ours: another source changes nothing
            except (ElasticdError, OSError) as error:
                reasons.append(f"{node}: {error}")
            finally:
                os.close(fd)
        raise OperationError(
            f"shard {index} of step {step} could not be had: {'; '.join(reasons) or 'no source'}"
        )

    async def _bring_shards(self, effect: e.FetchShards) -> None:
        try:
            await self._pull(
                effect.job, effect.step, effect.stamp, effect.count, effect.shards, effect.sources
            )
        except (ElasticdError, OSError) as error:
            stored, refused = await self._stored_of(effect.job), isinstance(error, DiskError)
            self._post(e.ShardsFetched(effect.report, False, str(error), stored, refused))
            return
        stored = await self._stored_of(effect.job)
        self._post(e.ShardsFetched(effect.report, True, "", stored))

    async def _bring_archive(self, effect: e.EnsureArchive) -> None:
        record = effect.job
        path = self._archives / f"{record.archive}.tar"
        try:
            if not path.exists():
                await self._ask_around(record.archive)
            folder = self._ranks.work_folder(record.id)
            if not folder.exists():
                data = await asyncio.to_thread(path.read_bytes)
                folder.parent.mkdir(parents=True, exist_ok=True)
                await asyncio.to_thread(archive.unpack, data, folder)
        except (ElasticdError, OSError) as error:
            self._post(e.ArchiveReady(record.id, False, str(error)))
            return
        self._post(e.ArchiveReady(record.id, True, ""))

    async def _ask_around(self, digest: str) -> None:
        """Fetch an archive from whichever peer has it; the submitter may have died since."""
        async for attempt in _attempts():
            with attempt:
                await self._ask_once(digest)

    peers: Callable[[], list[NodeId]] = staticmethod(lambda: [])
    record_of: Callable[[JobId], JobRecord]
    """The record of a job that runs or ran here."""

    async def _ask_once(self, digest: str) -> None:
        reasons = ["no peer is connected"]
        for node in self.peers():
            fd = nameless_file()
            try:
                await self._fetch(self._address(node), {"what": "archive", "digest": digest}, fd)
                os.lseek(fd, 0, os.SEEK_SET)
                self.keep_archive(b"".join(_slices(fd)), digest)
                return
            except (ElasticdError, OSError) as error:
                reasons.append(f"{node}: {error}")
            finally:
                os.close(fd)
        raise OperationError(f"archive {digest[:12]}: {'; '.join(reasons)}")

    async def _commit(self, effect: e.CommitManifest) -> None:
        made = effect.manifest
        ok, reason, refused = True, "", False
        async with self._storing:
            try:
                await asyncio.to_thread(self._commit_and_prune, effect)
            except (ElasticdError, OSError) as error:
                ok, reason, refused = False, str(error), not isinstance(error, ElasticdError)
                refused = refused or isinstance(error, DiskError)
                log.error("checkpoint not stored", step=made.step, reason=reason)
            stored = await self._stored_of(made.job)
        name = (made.job, made.lineage, made.step, made.stamp, made.count)
        self._post(e.ManifestKept(*name, ok, reason, stored, refused))

    async def _stored_of(self, job: JobId) -> tuple[Stored, ...]:
        try:
            return tuple(await asyncio.to_thread(self.store.stored, job))
        except StateError as error:
            log.error("the store can't be read", reason=str(error))
            return ()

    def _commit_and_prune(self, effect: e.CommitManifest) -> None:
        self.store.commit(effect.manifest)
        known = self.store.manifests(effect.job)
        spec = JobSpec.from_dict(self.record_of(effect.job).spec).checkpoint
        policies = policies_of(spec, {"keep": effect.keep})
        for old in prunable(known, policies, effect.manifest.lineage):
            if not self._pins[old.job, old.step, old.stamp]:
                self.store.remove(old.job, old.step, old.stamp)

    # --- serving ------------------------------------------------------------------

    async def serve(self, request: dict[str, Any]) -> int:
        """A descriptor of what a peer asks for; the caller closes it.

        Raises:
            OperationError, StateError: it isn't here.
            ProtocolError: the request is none.
        """
        try:
            match request["what"]:
                case "state":
                    return await self._ranks.export(JobId(request["job"]), request)
                case "shard":
                    with self.store.open_shard(
                        JobId(request["job"]),
                        request["step"],
                        Stamp(request["stamp"]),
                        request["index"],
                        request["count"],
                    ) as file:
                        return os.dup(file.fileno())
                case "log":
                    self.record_of(JobId(request["job"]))  # a name that came from elsewhere
                    return _file_of(
                        self.log_bytes(JobId(request["job"]), request["offset"], _LOG_BYTES)
                    )
                case what if what in peer.REQUESTS:
                    return _file_of(await self._answer(request))
                case "archive":
                    name = f"{request['digest']}.tar"
                    if "/" in name:
                        raise ProtocolError("bad digest")
                    return os.open(self._archives / name, os.O_RDONLY)
        except (KeyError, TypeError) as error:
            raise ProtocolError(f"bad fetch: {error}") from None
        except OSError as error:
            raise OperationError(str(error)) from None
        raise ProtocolError(f"nothing is called {request['what']!r}")

    async def _answer(self, request: dict[str, Any]) -> bytes:
        store = self.store_of(self._me)
        if request["what"] != "verify":
            return await asyncio.to_thread(peer.answer, store, request)
        # Reading may take longer than a peer waits for the first byte.
        key = ((request["job"], request["step"], request["stamp"]), request["index"])
        task = self._verifying.get(key)
        if task is None:
            task = asyncio.create_task(asyncio.to_thread(peer.answer, store, request))
            self._verifying[key] = task
        await asyncio.wait([task], timeout=_VERIFY_SECONDS)
        if not task.done():
            return peer.RUNNING_ANSWER
        self._verifying.pop(key, None)
        return task.result()

    def log_bytes(self, job: JobId, offset: int, limit: int) -> bytes:
        """What the job's ranks printed on this node from ``offset`` on, at most ``limit`` bytes."""
        data = b""
        for path in self._ranks.shown_logs(job):
            size = path.stat().st_size
            if offset < size:
                with path.open("rb") as file:
                    file.seek(offset)
                    data += file.read(limit - len(data))
                if len(data) >= limit:
                    break
            offset = max(0, offset - size)
        return data

    def _address(self, node: NodeId) -> str:
        address = self._address_of(node)
        if address is None:
            raise OperationError(f"{node} is not connected")
        return address

    def _run(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def nameless_file() -> int:
    """A descriptor of a file that has no name: memory on Linux, an unlinked file elsewhere."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("elasticd-state", os.MFD_CLOEXEC)
    fd, path = tempfile.mkstemp(prefix="elasticd-")
    os.unlink(path)
    return fd


class _OwnStore(LocalStore):
    """This node's store, as others may use it: what is in use is not removed."""

    def __init__(self, states: States) -> None:
        super().__init__(states.store.root, states.me)
        self._states = states

    def remove(self, job: JobId, step: int, stamp: Stamp) -> None:
        self._states.remove(job, step, stamp)


def policies_of(spec: CheckpointTable | None, given: Mapping[str, float]) -> list[Policy]:
    """Policies by the keys of job.toml; ``given`` wins over ``spec``. The newest always stays."""
    wanted: dict[str, float] = {"keep": 3, "keep_every_steps": 0, "keep_hours": 0}
    if spec is not None:
        wanted |= {key: getattr(spec, key) for key in wanted}
    wanted |= given
    policies: list[Policy] = [KeepLast(int(wanted["keep"]))]
    if wanted["keep_every_steps"]:
        policies.append(KeepEvery(int(wanted["keep_every_steps"])))
    if wanted["keep_hours"]:
        policies.append(KeepHours(wanted["keep_hours"]))
    if spec is not None and spec.keep_best:
        policies.append(KeepBest(spec.best == "highest"))
    return policies


async def _awaited(fetched: Awaitable[int]) -> int:
    return await fetched


def _file_of(data: bytes) -> int:
    fd = nameless_file()
    os.write(fd, data)
    return fd


def _attempts() -> tenacity.AsyncRetrying:
    return tenacity.AsyncRetrying(
        wait=tenacity.wait_exponential(multiplier=0.01, max=1.0),
        stop=tenacity.stop_after_delay(_RETRY_SECONDS),
        retry=tenacity.retry_if_exception_type((OperationError, OSError)),
        reraise=True,
    )


def _slices(fd: int) -> Any:
    while data := os.read(fd, 1 << 20):
        yield data


def _rows(found: Manifest) -> tuple[tuple[int, int, str], ...]:
    return tuple((s.index, s.bytes, s.digest) for s in found.shards)
