"""Keeps what is stored as it was written: reads it again at rest, notices what was changed by hand
or was of no use to a peer, repairs it from peers, and keeps the store within its quota.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import structlog
from watchdog.events import FileSystemEvent, FileSystemEventHandler

from elasticd.checkpoints import layout, summary
from elasticd.checkpoints.disk import TEMPORARY
from elasticd.checkpoints.folder import Pace
from elasticd.checkpoints.manifest import Manifest, Stored
from elasticd.checkpoints.port import Problem
from elasticd.checkpoints.retention import removed_from, superseded, useless
from elasticd.checkpoints.summary import Row
from elasticd.errors import ElasticdError, StateError
from elasticd.shell.storage.manifests import ManifestMender
from elasticd.shell.storage.outdated import remove_outdated, stored_by_all
from elasticd.shell.storage.pins import GoingError
from elasticd.shell.storage.states import States
from elasticd.shell.storage.watching import FolderWatch
from elasticd.shell.tasks import Tasks
from elasticd.types import JobId, NodeId

ROUND_SECONDS = 6 * 3600.0
"""Between the ends of two rounds over everything."""
BYTES_PER_SECOND = 50_000_000
"""Read at rest, so that training has the disk for itself."""
SETTLE_SECONDS = 1.0
"""After a change by hand; several usually come together."""
RETRY_SECONDS = 30.0

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Damage:
    """A shard that this node is to hold and can't use."""

    manifest: Manifest
    shard: int
    reason: str
    rotten: Problem | None = None
    """What is there of it, and is no copy."""

    @property
    def key(self) -> tuple[JobId, int, str, int]:
        m = self.manifest
        return m.job, m.step, m.stamp, self.shard


class Scrubber:
    """Two loops beside the daemon's work; :meth:`close` ends them.

    Attributes:
        watched: set once changes by hand are noticed, or can't be.
    """

    def __init__(
        self,
        states: States,
        nodes: Callable[[], list[NodeId]],
        quota_bytes: int = 0,
        *,
        round_seconds: float = ROUND_SECONDS,
        retry_seconds: float = RETRY_SECONDS,
        bytes_per_second: float = BYTES_PER_SECOND,
    ) -> None:
        """``nodes``: the other nodes that answer now. ``quota_bytes`` 0: as much as there is."""
        self._states, self._nodes, self._quota_bytes = states, nodes, quota_bytes
        self._round_seconds, self._retry_seconds = round_seconds, retry_seconds
        self._touched = asyncio.Event()
        self._changed: set[Path] = set()
        self._behind: set[JobId] = set()
        self._tasks = Tasks("the care for checkpoints")
        self._folder = FolderWatch()
        self.watched = asyncio.Event()
        self._throttle = Throttle(bytes_per_second)
        self._unrepaired: set[tuple[JobId, int, str, int]] = set()
        self._manifests = ManifestMender(states, nodes)

    def start(self) -> None:
        """Begin. In the event loop's thread."""
        self._states.doubted = self._note
        self._states.grown = self._grown
        self._tasks.keep("noticing what changes among the checkpoints", self._observe)
        self._tasks.keep("reading all checkpoints again", self._rounds)
        self._tasks.keep("repairing checkpoints", self._watch)

    def keep_within(self, quota_bytes: int) -> None:
        """From now on; 0: as much as there is."""
        self._quota_bytes = quota_bytes
        if quota_bytes:
            self._touched.set()

    def others(self) -> list[NodeId]:
        """The other nodes that answer now."""
        return self._nodes()

    async def has_room(self, size: int) -> bool:
        """Whether so many bytes more are within the quota."""
        return not self._quota_bytes or await self._used() + size <= self._quota_bytes

    def _grown(self, job: JobId, known: bool) -> None:
        if not known:
            self._behind.add(job)
        if self._quota_bytes or self._behind:
            self._touched.set()

    async def close(self) -> None:
        self._throttle.over = True
        await self._tasks.cancel()
        await self._folder.close()

    def _note(self, path: Path) -> None:
        self._changed.add(path)
        self._touched.set()

    # --- loops ----------------------------------------------------------------------------------

    async def _observe(self) -> None:
        root, loop = self._states.store.root, asyncio.get_running_loop()

        def wake(path: Path) -> None:
            loop.call_soon_threadsafe(self._note, path)

        handler = await asyncio.to_thread(ChangesByHand, root, wake)
        # inotify has limits that others may have used up: the rounds find damage too, but later.
        with contextlib.suppress(OSError):
            await self._folder.start(root, handler, recursive=True)
        self.watched.set()

    async def _rounds(self) -> None:
        while True:
            await asyncio.sleep(self._round_seconds)
            for item in await self._all():
                for shard in item.held:
                    await self._scrub(item.manifest, shard, self._throttle)
            await self._tell_changes(set())

    async def _watch(self) -> None:
        looked = False
        while True:
            with contextlib.suppress(TimeoutError):
                # A repair for which no peer was there is tried again. What a crash or somebody did
                # before the start is looked for when peers had the time to come.
                again = not looked or self._unrepaired or self._manifests.waits
                async with asyncio.timeout(self._retry_seconds if again else None):
                    await self._touched.wait()
            looked = True
            await asyncio.sleep(SETTLE_SECONDS)
            self._touched.clear()
            changed, self._changed = self._changed, set()
            try:
                await self._look_after(changed)
            except Exception:  # it is looked after again, with the next
                self._changed |= changed
                raise

    async def _look_after(self, changed: set[Path]) -> None:
        for item in await self._all():
            for shard in item.held:
                if self._path(item.manifest, shard) in changed:
                    await self._scrub(item.manifest, shard)
        await self._manifests.mend()
        missing = await asyncio.to_thread(self._missing)
        # One may have been pruned, have come otherwise, or be another node's to hold.
        self._unrepaired &= {damage.key for damage in missing}
        for damage in missing:
            await self._repair(damage)
        await self._tell_changes({JobId(path.parent.parent.name) for path in changed})
        await self._catch_up()

    # --- finding --------------------------------------------------------------------------------

    async def _all(self) -> list[Stored]:
        store = self._states.store

        def look() -> list[Stored]:
            return [item for job in store.jobs() for item in store.stored(job)]

        return await asyncio.to_thread(look)

    def _path(self, m: Manifest, shard: int) -> Path:
        return self._states.store.final_path(m.job, m.step, m.stamp, shard, m.count)

    async def _scrub(self, manifest: Manifest, shard: int, pace: Pace | None = None) -> None:
        m = manifest
        try:
            problems = await asyncio.to_thread(
                self._states.store.verify, m.job, m.step, m.stamp, shard, pace
            )
        except StateError as error:
            log.warning("can't scrub", step=m.step, shard=shard, reason=str(error))
            return
        for problem in problems:
            # It may have been pruned since.
            if problem.shard is not None and problem.path.exists():
                rotten = problem if problem.rotten else None
                await self._repair(Damage(m, problem.shard, problem.reason, rotten))

    def _missing(self) -> list[Damage]:
        """Shards that this node is to hold and that are gone or have another size."""
        found = []
        store, me = self._states.store, self._states.me
        for job in store.jobs():
            for item in store.stored(job):
                for shard in set(item.manifest.held_by(me)) - set(item.held):
                    found.append(
                        Damage(item.manifest, shard, "was removed, cut or set aside as damaged")
                    )
        return found

    # --- mending --------------------------------------------------------------------------------

    async def _repair(self, damage: Damage) -> None:
        m = damage.manifest
        if self._is_pruned(damage):
            return
        try:
            await self._states.copies.replace(m, damage.shard, tuple(self._nodes()))
        except ElasticdError as error:
            if isinstance(error, GoingError) or self._is_pruned(damage):
                return
            await self._set_aside(damage)
            if damage.key not in self._unrepaired:
                self._unrepaired.add(damage.key)
                fields = {"step": m.step, "shard": damage.shard, "cause": damage.reason}
                text = f"shard {damage.shard} of step {m.step} {damage.reason}; {error}"
                self._states.tell("checkpoint_damaged", m.job, text, fields)
            return
        self._unrepaired.discard(damage.key)
        self._states.copies.tell_repaired(m, damage.shard, damage.reason)
        await self._states.changed(m.job)

    async def _set_aside(self, damage: Damage) -> None:
        """What is rotten and whole nowhere keeps nobody from an older checkpoint."""
        if damage.rotten is None:
            return
        try:
            await asyncio.to_thread(self._states.store.set_aside, damage.rotten)
        except StateError as error:
            log.warning("can't be set aside", path=str(damage.rotten.path), reason=str(error))
        await self._states.changed(damage.manifest.job)

    async def _catch_up(self) -> None:
        behind, self._behind = self._behind, set()
        for job in sorted(behind):
            try:
                if await remove_outdated(self._states, self._nodes, job):
                    await self._states.changed(job)
            except ElasticdError as error:
                log.warning("old checkpoints stay", job=job, reason=str(error))

    def _is_pruned(self, damage: Damage) -> bool:
        """The checkpoint was removed while we looked: nothing of it is missing."""
        return not self._path(damage.manifest, damage.shard).parent.is_dir()

    async def _tell_changes(self, jobs: set[JobId]) -> None:
        """Keep the quota; the leader hears of what is gone of these jobs and of those of which
        something had to go."""
        for job in sorted(jobs | await self._keep_quota()):
            await self._states.changed(job)

    async def _keep_quota(self) -> set[JobId]:
        """Remove until the store is within its quota what nobody can restore any more, everywhere,
        then the oldest that no line needs; of which jobs something was removed."""
        touched = set[JobId]()
        used = await self._used() if self._quota_bytes else 0
        if used <= self._quota_bytes:
            return touched
        spare: list[Row] = []
        for job in await asyncio.to_thread(self._states.store.jobs):
            stored = await stored_by_all(self._states, self._nodes, job)
            rows, announced = summary.rows(stored), self._states.retaining.announced(job)
            lost = useless(rows, stored, announced)
            for row in lost:
                touched |= await self._remove(row, row.nodes)
            spare += [row for row in superseded(rows, announced) if row not in lost]
        for row in sorted(spare, key=lambda row: row.manifest.created_seconds):
            if (used := await self._used()) <= self._quota_bytes:
                return touched
            touched |= await self._remove(row, removed_from(row, self._states.me))
        if (used := await self._used()) > self._quota_bytes:
            log.warning("over the quota", used_bytes=used, quota_bytes=self._quota_bytes)
        return touched

    async def _used(self) -> int:
        return sum(map(_bytes, await self._all()))

    async def _remove(self, row: Row, nodes: Iterable[NodeId]) -> set[JobId]:
        m, removed = row.manifest, set[JobId]()
        for node in nodes:
            # It may be in use there, or the node gone: it goes another time.
            with contextlib.suppress(ElasticdError):
                store = self._states.store_of(node)
                await asyncio.to_thread(store.remove, m.job, m.step, m.stamp)
                removed.add(m.job)
                log.info("removed for the quota", job=m.job, step=m.step, node=node)
        return removed


class Throttle:
    """Called with the size of what was read, in a thread: keeps to a rate of bytes a second."""

    def __init__(self, bytes_per_second: float) -> None:
        self._rate = bytes_per_second
        self.over = False

    def __call__(self, count: int) -> None:
        if not self.over:
            time.sleep(count / self._rate)


class ChangesByHand(FileSystemEventHandler):
    """Tells of a final checkpoint's file that is gone or changed; hints only. What we write
    ourselves has a temporary name, or a folder that isn't final yet.

    macOS names what has changed by the path without links (/private/tmp for /tmp), Linux by the one
    that is watched: ``wake`` is told the latter."""

    def __init__(self, root: Path, wake: Callable[[Path], object]) -> None:
        self._root, self._real = root, root.resolve()
        self._wake = wake

    def on_any_event(self, event: FileSystemEvent) -> None:
        if event.event_type not in ("deleted", "modified", "moved"):
            return
        path = Path(str(event.src_path))
        folder = layout.parse_folder(path.parent.name)
        ours = path.name.endswith(TEMPORARY) or folder is None or folder[2]
        manifest = path.name == layout.MANIFEST_NAME
        if not ours and (manifest or layout.parse_shard(path.name) is not None):
            real = path.is_relative_to(self._real)
            self._wake(self._root / path.relative_to(self._real) if real else path)


def _bytes(item: Stored) -> int:
    return sum(item.manifest.shards[index].bytes for index in item.held)
