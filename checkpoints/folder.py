"""The folder of one checkpoint on a node's disk: which shards are in it, and what is wrong with
them."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from elasticd.checkpoints import header, layout, manifest
from elasticd.checkpoints.disk import TEMPORARY, Disk, refusing
from elasticd.checkpoints.integrity import PREFIX, Verifier, head_digest
from elasticd.checkpoints.manifest import Manifest
from elasticd.checkpoints.port import Problem
from elasticd.checkpoints.sequential import SLICE_BYTES
from elasticd.errors import LackError, StateError
from elasticd.types import NodeId

_LOST = {errno.EIO, errno.EBADMSG, getattr(errno, "EUCLEAN", errno.EIO)}

Pace = Callable[[int], object]
"""Called with the size of each slice that was read."""


@dataclass(frozen=True, slots=True)
class CheckpointFolder:
    """Final or not, there or not. Raises :class:`StateError`, naming the path, when the disk
    refuses."""

    path: Path
    node: NodeId | None
    """Whose shards are to be here; without it nothing is said to be missing."""
    disk: Disk

    def shard(self, found: Manifest, index: int) -> Path:
        """Where a shard is, or would be."""
        return self.path / layout.shard_name(index, found.count)

    # --- what is in it ----------------------------------------------------------------------------

    def manifest(self) -> Manifest:
        """The one that is here.

        Raises:
            StateError: also when it can't be read, or isn't one.
        """
        path = self.path / layout.MANIFEST_NAME
        with refusing(path), path.open("rb") as file:
            data = file.read(manifest.MAX_BYTES + 1)
        return manifest.decode(data, str(path))

    def without_manifest(self, error: StateError) -> Problem:
        """What is wrong where :meth:`manifest` has failed."""
        return Problem(self.path / layout.MANIFEST_NAME, None, str(error))

    def present(self, found: Manifest) -> tuple[int, ...]:
        """The shards that are here, at the manifest's sizes."""
        sizes = ((shard, size_of(self.shard(found, shard.index))) for shard in found.shards)
        return tuple(shard.index for shard, size in sizes if size == shard.bytes)

    def missing(self, found: Manifest) -> list[Problem]:
        """Shards that the node is to hold and that are not here, and those of another size."""
        mine, present = self._mine(found), self.present(found)
        problems = []
        for shard in found.shards:
            path = self.shard(found, shard.index)
            if shard.index in present:
                continue
            size = size_of(path)
            if size is not None:
                reason = f"has {size} bytes, not {shard.bytes}"
            elif shard.index in mine:
                reason = "is missing, though this node is a holder"
            else:
                continue
            problems.append(Problem(path, shard.index, reason))
        return problems

    def verify(
        self, found: Manifest, wanted: Collection[int], pace: Pace | None = None
    ) -> list[Problem]:
        """Read these shards; those that are rotten, unreadable or missing."""
        problems = [p for p in self.missing(found) if p.shard in wanted]
        for index in (i for i in self.present(found) if i in wanted):
            path = self.shard(found, index)
            try:
                if reason := rot(path, found.shards[index].digest, pace):
                    problems.append(Problem(path, index, reason, rotten=True))
            except StateError as error:
                problems.append(Problem(path, index, str(error), rotten=is_lost(error.__cause__)))
        return problems

    def _mine(self, found: Manifest) -> tuple[int, ...]:
        return () if self.node is None else found.held_by(self.node)

    # --- before it is final -----------------------------------------------------------------------

    def require_own(self, new: Manifest) -> None:
        """Every shard that the node is to hold is here, and of this state: one may have been
        written over, at the same size, by a copy of what an earlier world had.

        Raises:
            LackError: one isn't.
        """
        mine = self._mine(new)
        for problem in self.missing(new):
            if problem.shard in mine:
                raise LackError(f"{problem.path}: {problem.reason}")
        for index in mine:
            path = self.shard(new, index)
            if not has_head_of(path, new.shards[index].digest):
                raise LackError(f"{path}: is of another state than its manifest")

    def take_in(self, partial: CheckpointFolder, new: Manifest) -> None:
        """Move in what is missing of what a later world has written again; the rest stays."""
        written = partial.present(new)
        for index in (p.shard for p in self.missing(new) if p.shard in written):
            assert index is not None
            source = partial.shard(new, index)
            if rot(source, new.shards[index].digest):
                continue  # its writer had another state
            with refusing(self.path):
                self.disk.rename(source, self.shard(new, index))

    def remove_others(self, new: Manifest) -> None:
        """Shards of the node's that the manifest doesn't count: right ones stay, as copies. Whose
        trainer had another state has others, and none may pass for a copy by its size."""
        if self.node is None:
            return
        mine = self._mine(new)
        for index in (i for i in self.present(new) if i not in mine):
            path = self.shard(new, index)
            if rot(path, new.shards[index].digest):
                with refusing(path):
                    self.disk.remove_file(path)

    def remove_strangers(self, new: Manifest) -> None:
        """Files of another cut of the same state, left by a world of another size."""
        ours = {layout.shard_name(index, new.count) for index in self.present(new)}
        for path in entries(self.path):
            if path.name not in ours and path.name != layout.MANIFEST_NAME and path.is_file():
                self.disk.remove_file(path)

    def put_aside(self) -> bool:
        """Give up the name, and keep the bytes, for people, until the job is forgotten. False: too
        many of this name lie aside."""
        return lay_aside(self.path, self.disk)

    def discard(self) -> None:
        """Remove it at once; a crash may leave bytes under a temporary name."""
        with refusing(self.path):
            doomed = self.path
            if not doomed.name.endswith(TEMPORARY):
                doomed = doomed.with_name(doomed.name + TEMPORARY)
                self.disk.remove_folder(doomed)
                with suppress(FileNotFoundError):  # somebody else has removed it
                    self.disk.rename(self.path, doomed)
                self.disk.sync_folder(doomed.parent)
            self.disk.remove_folder(doomed)


def lay_aside(path: Path, disk: Disk) -> bool:
    """Give what is at ``path`` a name that is not in use. False: none is free."""
    names = (path.with_name(name) for name in layout.aside_names(path.name))
    aside = next((name for name in names if not name.exists()), None)
    if aside is not None:
        with refusing(path):
            disk.rename(path, aside)
            disk.sync_folder(path.parent)
    return aside is not None


def entries(folder: Path) -> list[Path]:
    """What is in a folder, by name; nothing if there is no folder."""
    with refusing(folder), suppress(FileNotFoundError, NotADirectoryError):
        return sorted(folder.iterdir())
    return []


def size_of(path: Path) -> int | None:
    """In bytes. None: it isn't there, or can't be looked at."""
    try:
        return os.stat(path).st_size
    except OSError:
        return None


def changed_at(path: Path) -> int:
    """On the wall clock, in ns; a folder changes when a shard comes. 0: it isn't there."""
    with refusing(path), suppress(FileNotFoundError):
        return os.stat(path).st_mtime_ns
    return 0


def has_head_of(path: Path, digest: str) -> bool:
    """Whether a file is of the state that its digest is of, as far as its head tells: that names
    what each tensor is to be. Digests of the first versions don't tell."""
    if not digest.startswith(PREFIX):
        return True
    with refusing(path), path.open("rb") as file:
        first = file.read(header.LENGTH_BYTES)
        length = int.from_bytes(first, "little")
        text = file.read(min(length, header.MAX_HEADER_BYTES))
    return head_digest(first + text) == digest


def is_lost(error: BaseException | None) -> bool:
    """Whether a disk says of what is on it that it can't be read any more."""
    return isinstance(error, OSError) and error.errno in _LOST


def rot(path: Path, digest: str, pace: Pace | None = None) -> str:
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
