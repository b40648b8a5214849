"""The checkpoints on one node's disk.

``root/<job>/<step>-<stamp>/`` holds the manifest and this node's shards. It is made as
``….partial`` and renamed when the manifest is durable in it; so a folder with a final name is a
checkpoint that was consistent, and every other name is something a crash may leave and
:meth:`LocalStore.sweep` removes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from elasticd.checkpoints import layout, manifest
from elasticd.checkpoints.disk import (
    LOCAL_DISK,
    TEMPORARY,
    Disk,
    make_folders,
    refusing,
    write_beside,
)
from elasticd.checkpoints.integrity import Verifier, verified
from elasticd.checkpoints.manifest import Manifest, Shard, Stored
from elasticd.checkpoints.port import Problem
from elasticd.checkpoints.sequential import SLICE_BYTES, Chunk
from elasticd.errors import StateError
from elasticd.types import JobId, NodeId, Stamp

Pace = Callable[[int], object]


@dataclass(frozen=True, slots=True)
class Swept:
    """What :meth:`LocalStore.sweep` removed, and what it found wrong and left."""

    removed: tuple[Path, ...]
    problems: tuple[Problem, ...]


class LocalStore:
    """One node's checkpoints, of all jobs, under ``root`` (``HOME/checkpoints``). Calls block.

    Whatever changes the disk is durable on return, and survives a crash at any instant as either
    done or not done. Every method raises :class:`StateError`, naming the path, when the disk
    refuses (full, read-only, no permission). One thread at a time per checkpoint; reading may go on
    beside.
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
            for path in _list(self._root)
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

    def held(
        self, job: JobId, step: int, stamp: Stamp, count: int | None = None
    ) -> tuple[int, ...]:
        """The shards that are here, at the manifest's sizes.

        Before the commit, ``count`` says of how many shards the checkpoint is; without it nothing
        is held yet.
        """
        found = self._find(job, step, stamp)
        if found is not None:
            return _present(self._final(job, step, stamp), found)
        if count is None:
            return ()
        folder = self._folder(job, step, stamp)
        return tuple(i for i in range(count) if (folder / layout.shard_name(i, count)).is_file())

    def is_right(
        self, job: JobId, step: int, stamp: Stamp, index: int, count: int, digest: str
    ) -> bool:
        """Whether a shard is here, before the commit too, with this digest: it is read for that."""
        path = self._shard_path(job, step, stamp, index, count)
        try:
            return not _rot(path, digest, None)
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
            StateError: also when that isn't the manifest's.
        """
        path = self._shard_path(job, step, stamp, index, count)
        found = self._find(job, step, stamp)
        if not 0 <= index < count or (
            found is not None and (found.count, found.shards[index].digest) != (count, digest)
        ):
            raise StateError(f"{path}: not a shard of this checkpoint")
        make_folders(self._disk, path.parent)
        written = 0

        def counted() -> Iterator[Chunk]:
            nonlocal written
            for chunk in verified(chunks, digest, f"{path}: refused"):
                written += memoryview(chunk).nbytes
                yield chunk

        write_beside(self._disk, path, counted())
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

        Raises:
            StateError: also when a shard that this node is to hold isn't here, or another state has
                that name.
        """
        job, step, stamp = new.job, new.step, new.stamp
        final, partial = self._final(job, step, stamp), self._partial(job, step, stamp)
        data = manifest.encode(new)
        old = self._find(job, step, stamp)
        if old is not None and not old.same_state(new):
            raise StateError(f"{final}: another state is committed there")
        at = self._folder(job, step, stamp)
        make_folders(self._disk, at)
        if at == final:
            self._take_in(partial, final, new)
        self._require_own(at, new)
        if at == partial:
            self._remove_others(at, new)
        if old != new:
            write_beside(self._disk, at / layout.MANIFEST_NAME, [data])
        with refusing(at):
            self._remove_strangers(at, new)
            if at == partial:
                self._disk.rename(partial, final)
            else:
                self._disk.sync_folder(final)
            self._disk.sync_folder(final.parent)

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
        final = self._final(job, step, stamp)
        try:
            found = _read_manifest(final)
        except StateError as error:
            return [Problem(final / layout.MANIFEST_NAME, None, str(error))]
        wanted = range(found.count) if index is None else (index,)
        problems = [p for p in _missing(final, found, self._node) if p.shard in wanted]
        for shard in (i for i in _present(final, found) if i in wanted):
            path = final / layout.shard_name(shard, found.count)
            try:
                if reason := _rot(path, found.shards[shard].digest, pace):
                    problems.append(Problem(path, shard, reason, rotten=True))
            except StateError as error:
                problems.append(Problem(path, shard, str(error)))
        return problems

    def set_aside(self, problem: Problem) -> None:
        """Let a rotten shard, as :meth:`verify` found it, be held no more: a checkpoint that nobody
        can restore must not keep anybody from an older one. The bytes stay, for people."""
        path = problem.path
        with refusing(path):
            self._disk.rename(path, path.with_name(path.name + layout.DAMAGED))
            self._disk.sync_folder(path.parent)

    def remove(self, job: JobId, step: int, stamp: Stamp) -> None:
        """Remove a checkpoint, final or not, at once; a crash may leave bytes for the sweep."""
        for folder in (self._final(job, step, stamp), self._partial(job, step, stamp)):
            if folder.is_dir():
                self._discard(folder)

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
            for path in () if each in written else self._leftovers(each, spared):
                with refusing(path):
                    if path.is_dir():
                        self._discard(path)
                    else:
                        self._disk.remove_file(path)
                removed.append(path)
            problems += [problem for _, found in self._examine(each) for problem in found]
        return Swept(tuple(removed), tuple(problems))

    def final_path(self, job: JobId, step: int, stamp: Stamp, index: int, count: int) -> Path:
        """Where a shard of a checkpoint is that is final."""
        return self._final(job, step, stamp) / layout.shard_name(index, count)

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
            found = _read_manifest(final)
        except StateError:
            return None
        if (found.job, found.step, found.stamp) != (job, step, stamp):
            raise StateError(f"{final}: another state is committed there")
        return found

    def _examine(self, job: JobId) -> Iterator[tuple[Stored | None, list[Problem]]]:
        for _, folder in self._folders(job, partial=False):
            try:
                found = _read_manifest(folder)
                if found.job != job or layout.final_name(found.step, found.stamp) != folder.name:
                    raise StateError(f"{folder}: holds the manifest of another checkpoint")
            except StateError as error:
                yield None, [Problem(folder / layout.MANIFEST_NAME, None, str(error))]
                continue
            examined = Stored(found, _present(folder, found)), _missing(folder, found, self._node)
            if folder.is_dir():  # else it was removed while we looked, and nothing of it is missing
                yield examined

    def _take_in(self, partial: Path, final: Path, new: Manifest) -> None:
        """Move in what is missing of what a later world has written again; the rest stays."""
        written = _present(partial, new)
        for shard in (n.shard for n in _missing(final, new, self._node) if n.shard in written):
            assert shard is not None
            name = layout.shard_name(shard, new.count)
            if _rot(partial / name, new.shards[shard].digest, None):
                continue  # its writer had another state
            with refusing(final):
                self._disk.rename(partial / name, final / name)

    def _require_own(self, folder: Path, new: Manifest) -> None:
        mine = () if self._node is None else new.held_by(self._node)
        for problem in _missing(folder, new, self._node):
            if problem.shard in mine:
                raise StateError(f"{problem.path}: {problem.reason}")

    def _remove_others(self, folder: Path, new: Manifest) -> None:
        """Shards of this node's that the manifest doesn't count: right ones stay, as copies. Whose
        trainer had another state has others, and none may pass for a copy by its size."""
        if self._node is None:
            return
        mine = new.held_by(self._node)
        for index in (i for i in _present(folder, new) if i not in mine):
            path = folder / layout.shard_name(index, new.count)
            if _rot(path, new.shards[index].digest, None):
                with refusing(path):
                    self._disk.remove_file(path)

    def _remove_strangers(self, folder: Path, new: Manifest) -> None:
        """Files of another cut of the same state, left by a world of another size."""
        ours = {layout.shard_name(index, new.count) for index in _present(folder, new)}
        for path in _list(folder):
            if path.name not in ours and path.name != layout.MANIFEST_NAME and path.is_file():
                self._disk.remove_file(path)

    def _leftovers(self, job: JobId, spared: Collection[Path]) -> list[Path]:
        finals, partials = self._folders(job, partial=False), self._folders(job, partial=True)
        ends = [(step, _changed_at(path / layout.MANIFEST_NAME)) for step, path in finals]

        def is_over(step: int, path: Path) -> bool:
            changed = _changed_at(path)
            return any(end >= step and since >= changed for end, since in ends)

        old = [path for step, path in partials if path not in spared and is_over(step, path)]
        kept = [path for _, path in (*finals, *partials) if path not in (*spared, *old)]
        places = [self.folder(job), *kept]
        temporary = [p for place in places for p in _list(place) if p.name.endswith(TEMPORARY)]
        return temporary + old

    def _folders(self, job: JobId, *, partial: bool) -> list[tuple[int, Path]]:
        """(step, folder) of the job's final or partial checkpoints, by step."""
        parsed = [(layout.parse_folder(path.name), path) for path in _list(self.folder(job))]
        return sorted((p[0], path) for p, path in parsed if p is not None and p[2] == partial)

    def _discard(self, folder: Path) -> None:
        with refusing(folder):
            doomed = folder
            if not folder.name.endswith(TEMPORARY):
                doomed = folder.with_name(folder.name + TEMPORARY)
                self._disk.remove_folder(doomed)
                self._disk.rename(folder, doomed)
                self._disk.sync_folder(folder.parent)
            self._disk.remove_folder(doomed)


def _missing(folder: Path, found: Manifest, node: NodeId | None) -> list[Problem]:
    """Shards that ``node`` is to hold and that are not here, and those of another size."""
    mine = () if node is None else found.held_by(node)
    present = _present(folder, found)
    problems = []
    for shard in found.shards:
        path = folder / layout.shard_name(shard.index, found.count)
        if shard.index in present:
            continue
        if path.exists():
            reason = f"has {path.stat().st_size} bytes, not {shard.bytes}"
        elif shard.index in mine:
            reason = "is missing, though this node is a holder"
        else:
            continue
        problems.append(Problem(path, shard.index, reason))
    return problems


def _can_name_a_job(name: str) -> bool:
    return not (
        not name or name.startswith(".") or name.endswith(TEMPORARY) or set("/\0") & set(name)
    )


def _list(folder: Path) -> list[Path]:
    with refusing(folder):
        return sorted(folder.iterdir()) if folder.is_dir() else []


def _changed_at(path: Path) -> int:
    """On the wall clock, in ns; a folder changes when a shard comes."""
    with refusing(path):
        return path.stat().st_mtime_ns if path.exists() else 0


def _read_manifest(folder: Path) -> Manifest:
    path = folder / layout.MANIFEST_NAME
    with refusing(path), path.open("rb") as file:
        data = file.read(manifest.MAX_BYTES + 1)
    return manifest.decode(data, str(path))


def _present(folder: Path, found: Manifest) -> tuple[int, ...]:
    def size(index: int) -> int:
        try:
            return os.stat(folder / layout.shard_name(index, found.count)).st_size
        except OSError:
            return -1

    return tuple(shard.index for shard in found.shards if size(shard.index) == shard.bytes)


def _rot(path: Path, digest: str, pace: Pace | None) -> str:
    """What is wrong with the file's content, or nothing."""
    check = Verifier(digest)
    with refusing(path), path.open("rb", buffering=0) as file:
        buffer = memoryview(bytearray(SLICE_BYTES))
        while count := file.readinto(buffer):
            check.update(buffer[:count])
            if pace is not None:
                pace(count)
    finding = check.finish()
    return "" if finding is None else finding.reason
