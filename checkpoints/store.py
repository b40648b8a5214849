"""The checkpoints on one node's disk.

``root/<job>/<step>-<stamp>/`` holds the manifest and this node's shards. It is made as
``….partial`` and renamed when the manifest is durable in it; so a folder with a final name is a
checkpoint that was consistent, and every other name is something a crash may leave and
:meth:`LocalStore.sweep` removes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from elasticd.checkpoints import layout, manifest
from elasticd.checkpoints.disk import (
    LOCAL_DISK,
    TEMPORARY,
    Disk,
    filling,
    make_folders,
    refusing,
    write_beside,
)
from elasticd.checkpoints.folder import CheckpointFolder, Pace, entries, lay_aside, rot
from elasticd.checkpoints.integrity import verified
from elasticd.checkpoints.leftovers import checkpoints_in, leftovers
from elasticd.checkpoints.manifest import Manifest, Shard, Stored
from elasticd.checkpoints.port import Problem
from elasticd.checkpoints.sequential import Chunk
from elasticd.errors import StateError, TakenError
from elasticd.types import JobId, NodeId, Stamp, is_job_id

_LOOKS = 8
"""How often what is there is listed again, in all, beside somebody who removes without end."""


@dataclass(frozen=True, slots=True)
class Swept:
    """What :meth:`LocalStore.sweep` removed, and what it found wrong and left."""

    removed: tuple[Path, ...]
    problems: tuple[Problem, ...]


class LocalStore:
    """One node's checkpoints, of all jobs, under ``root`` (``HOME/checkpoints``), which is never
    made here. Calls block.

    Whatever changes the disk is durable on return, and survives a crash at any instant as either
    done or not done. Every method raises :class:`StateError`, naming the path, when the disk
    refuses (full, read-only, no permission). One thread at a time per checkpoint, beside readers.
    """

    def __init__(self, root: Path, node: NodeId | None = None, *, disk: Disk = LOCAL_DISK) -> None:
        """``node`` is whose shards are to be here; without it nothing is said to be missing."""
        self._root, self._node, self._disk = root, node, disk

    @property
    def root(self) -> Path:
        """The folder of all jobs' folders."""
        return self._root

    def folder(self, job: JobId) -> Path:
        """Where the job's checkpoints go, a world's ``checkpoint_folder``; not made by this."""
        if not _can_name_a_job(job):
            raise StateError(f"{self._root}: a job can't be named {job!r}")
        return self._root / job

    def jobs(self) -> list[JobId]:
        """Jobs that have anything stored here."""
        return [
            JobId(path.name)
            for path in entries(self._root)
            if _can_name_a_job(path.name) and path.is_dir()
        ]

    def stored(self, job: JobId) -> list[Stored]:
        """Every checkpoint with a readable manifest, by step, and the shards really here."""
        return [item for item, _ in self._examine(job) if item is not None]

    def manifests(self, job: JobId) -> list[Manifest]:
        """Those of :meth:`stored` of which all that this node is to hold is here, at its size."""
        return [
            item.manifest
            for item, problems in self._examine(job)
            if item is not None and not problems
        ]

    def problems(self, job: JobId) -> list[Problem]:
        """Final checkpoints without a readable manifest, shards that this node is to hold and that
        are not here, and those of another size. Nothing is read as a whole."""
        return [problem for _, found in self._examine(job) for problem in found]

    def unreadable(self, job: JobId) -> list[str]:
        """The folders' names of final checkpoints without a readable manifest."""
        return [p.path.parent.name for p in self.problems(job) if p.shard is None]

    def held(
        self, job: JobId, step: int, stamp: Stamp, count: int | None = None
    ) -> tuple[int, ...]:
        """The shards that are here, at the manifest's sizes.

        Before the commit, ``count`` says of how many shards the checkpoint is; without it nothing
        is held yet.
        """
        found = self._find(job, step, stamp)
        if found is not None:
            return self._at(self._final(job, step, stamp)).present(found)
        return () if count is None else _there(self._folder(job, step, stamp), count)

    def coming(self, job: JobId, step: int, stamp: Stamp, count: int) -> tuple[int, ...]:
        """The shards that are here of a checkpoint that is not final yet. One that is, without a
        readable manifest, is damaged and not on its way."""
        if self._final(job, step, stamp).is_dir():
            return ()
        return _there(self._partial(job, step, stamp), count)

    def is_right(
        self, job: JobId, step: int, stamp: Stamp, index: int, count: int, digest: str
    ) -> bool:
        """Whether a shard is here, before the commit too, with this digest: it is read for that."""
        path = self._shard_path(job, step, stamp, index, count)
        try:
            return not rot(path, digest)
        except StateError:
            return False

    def put_shard(
        self,
        job: JobId,
        step: int,
        stamp: Stamp,
        index: int,
        count: int,
        chunks: Iterable[Chunk],
        digest: str,
    ) -> Shard:
        """Store a shard that a peer sent, before the commit or to repair a final checkpoint.

        Raises:
            RotError: its digest isn't ``digest``; nothing of it is then left.
            TakenError: that isn't the manifest's of what is final here.
        """
        found = self._find(job, step, stamp)
        if not 0 <= index < count or not (
            found is None
            or (found.count == count and found.shards[index].digest == digest)
            or self._give_way(found)
        ):
            path = self._shard_path(job, step, stamp, index, count)
            raise TakenError(f"{path}: not a shard of this checkpoint")
        path = self._shard_path(job, step, stamp, index, count)
        written = 0

        def counted() -> Iterator[Chunk]:
            nonlocal written
            for chunk in verified(chunks, digest, f"{path}: refused"):
                written += memoryview(chunk).nbytes
                yield chunk

        with filling(self._disk, path.parent, self._root):
            write_beside(self._disk, path, counted(), contested=True)
        return Shard(index, written, digest)

    def open_shard(self, job: JobId, step: int, stamp: Stamp, index: int, count: int) -> BinaryIO:
        """A shard that is here, for reading; the caller closes it.

        Raises:
            StateError: it isn't here.
        """
        path = self._shard_path(job, step, stamp, index, count)
        with refusing(path):
            return path.open("rb")

    def commit(self, new: Manifest) -> None:
        """Make the checkpoint final on this node, which may hold none of its shards.

        Doing it again is fine; a manifest of the same state that names other holders takes over.
        One of other files gives way if it only says that others have them, or if it is ousted.

        Raises:
            StateError: also when another state has that name; LackError when a shard that this
                node is to hold isn't here, or another state's is.
        """
        job, step, stamp = new.job, new.step, new.stamp
        final, partial = self._final(job, step, stamp), self._partial(job, step, stamp)
        data = manifest.encode(new)
        old = self._find(job, step, stamp)
        if old is not None and not old.same_state(new) and not self._give_way(old, new):
            raise StateError(f"{final}: another state is committed there")
        at = self._folder(job, step, stamp)
        folder = self._at(at)
        make_folders(self._disk, at, self._root)
        if at == final:
            folder.take_in(self._at(partial), new)
        folder.require_own(new)
        if at == partial:
            folder.remove_others(new)
        if old != new:
            path = at / layout.MANIFEST_NAME
            write_beside(self._disk, path, [data], contested=True, last=False)
        with refusing(at):
            folder.remove_strangers(new)
            if at == partial:
                self._disk.rename(partial, final)
            else:
                self._disk.order_folder(final)
            self._disk.sync_folder(final.parent)

    def takes(self, wanted: Manifest) -> bool:
        """False: what is final here under this name are other files, by which another world has
        stored the state; nothing is written over them."""
        found = self._find(wanted.job, wanted.step, wanted.stamp)
        return found is None or found.shards == wanted.shards or self._only_names(found)

    def verify(
        self,
        job: JobId,
        step: int,
        stamp: Stamp,
        index: int | None = None,
        pace: Pace | None = None,
    ) -> list[Problem]:
        """Read all that is here of a final checkpoint, or shard ``index`` of it; what is rotten,
        unreadable or missing. ``pace`` is called with the size of each slice that was read."""
        folder = self._at(self._final(job, step, stamp))
        try:
            found = folder.manifest()
        except StateError as error:
            return [folder.without_manifest(error)]
        return folder.verify(found, range(found.count) if index is None else (index,), pace)

    def set_aside(self, problem: Problem) -> None:
        """Let a rotten shard, as :meth:`verify` found it, be held no more: a checkpoint that nobody
        can restore must not keep anybody from an older one. The bytes stay, for people."""
        if not lay_aside(problem.path, self._disk):  # So many of it lie there already.
            with refusing(problem.path):
                self._disk.remove_file(problem.path)

    def remove(self, job: JobId, step: int, stamp: Stamp) -> None:
        """Remove a checkpoint, final or not, at once; a crash may leave bytes for the sweep."""
        for folder in (self._final(job, step, stamp), self._partial(job, step, stamp)):
            if folder.is_dir():
                self._at(folder).discard()

    def sweep(
        self,
        job: JobId | None = None,
        current: Collection[tuple[JobId, int, Stamp]] = (),
        written: Collection[JobId] = (),
    ) -> Swept:
        """Remove what a crash left of one job or all, and report what can't be used.

        Removed are temporary names, and unfinished checkpoints that one of the same step or a later
        one has overtaken; nothing of ``current``, the checkpoints that are being written or
        repaired now, and of the jobs in ``written``, of which a process may be writing any. What
        was written after that is of a newer history, which began before it.
        Final checkpoints that are rotten or short of a shard are reported and left for repair.
        """
        removed: list[Path] = []
        problems: list[Problem] = []
        spared = {self._partial(*key) for key in current} | {self._final(*key) for key in current}
        for each in self.jobs() if job is None else [job]:
            for path in () if each in written else leftovers(self.folder(each), spared):
                with refusing(path):
                    if path.is_dir():
                        self._at(path).discard()
                    else:
                        self._disk.remove_file(path)
                removed.append(path)
            problems += self.problems(each)
        return Swept(tuple(removed), tuple(problems))

    def final_path(self, job: JobId, step: int, stamp: Stamp, index: int, count: int) -> Path:
        """Where a shard of a checkpoint is that is final."""
        return self._final(job, step, stamp) / layout.shard_name(index, count)

    def _only_names(self, found: Manifest) -> bool:
        """Nothing of a final checkpoint is here, or should be: it says who has it."""
        mine = () if self._node is None else found.held_by(self._node)
        return not mine and not self.held(found.job, found.step, found.stamp)

    def _give_way(self, found: Manifest, new: Manifest | None = None) -> bool:
        """Whether other files can have the name of a final checkpoint, then gone or put aside."""
        final = self._final(found.job, found.step, found.stamp)
        if self._only_names(found):
            self._at(final).discard()
            return True
        return new is not None and manifest.ousts(new, found) and self._at(final).put_aside()

    def _at(self, path: Path) -> CheckpointFolder:
        return CheckpointFolder(path, self._node, self._disk)

    def _final(self, job: JobId, step: int, stamp: Stamp) -> Path:
        return self.folder(job) / layout.final_name(step, stamp)

    def _partial(self, job: JobId, step: int, stamp: Stamp) -> Path:
        return self.folder(job) / layout.partial_name(step, stamp)

    def _shard_path(self, job: JobId, step: int, stamp: Stamp, index: int, count: int) -> Path:
        return self._folder(job, step, stamp) / layout.shard_name(index, count)

    def _folder(self, job: JobId, step: int, stamp: Stamp) -> Path:
        final = self._final(job, step, stamp)
        return final if final.is_dir() else self._partial(job, step, stamp)

    def _find(self, job: JobId, step: int, stamp: Stamp) -> Manifest | None:
        """The readable manifest of a committed checkpoint.

        Raises:
            StateError: one of another state is there, whose stamp begins alike.
        """
        final = self._final(job, step, stamp)
        try:
            found = self._at(final).manifest()
        except StateError:
            return None
        if (found.job, found.step, found.stamp) != (job, step, stamp):
            raise StateError(f"{final}: another state is committed there")
        return found

    def _examine(self, job: JobId) -> list[tuple[Stored | None, list[Problem]]]:
        """What there was at one moment: if one goes while we look another may have come for it."""
        for _ in range(_LOOKS):
            folders = checkpoints_in(self.folder(job), partial=False)
            found = list(self._look_at(job, [path for _, path in folders]))
            if checkpoints_in(self.folder(job), partial=False) == folders:
                break
        return found

    def _look_at(
        self, job: JobId, folders: Iterable[Path]
    ) -> Iterator[tuple[Stored | None, list[Problem]]]:
        for path in folders:
            folder = self._at(path)
            examined: tuple[Stored | None, list[Problem]]
            try:
                found = folder.manifest()
                if found.job != job or layout.final_name(found.step, found.stamp) != path.name:
                    raise StateError(f"{path}: holds the manifest of another checkpoint")
                examined = Stored(found, folder.present(found)), folder.missing(found)
            except StateError as error:
                examined = None, [folder.without_manifest(error)]
            yield examined


def _there(folder: Path, count: int) -> tuple[int, ...]:
    return tuple(i for i in range(count) if (folder / layout.shard_name(i, count)).is_file())


def _can_name_a_job(name: str) -> bool:
    return is_job_id(name) and not name.endswith(TEMPORARY)
