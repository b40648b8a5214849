"""A job's folder for each of its trainers on a node.

A spare runs the same script while the trainer lives, and ``open("train.log", "w")`` would empty a
file that the other one writes. So each process has a clone of the folder that was sent. It makes
its clone itself, before the script, so that the daemon never waits for a disk. A clone is locked by
its process and by those that it forks, not by a record of the daemon's: the lock ends with them,
whoever kills them, and whether a daemon lives. Processes that begin with a program of their own
(``subprocess``, and ``multiprocessing`` where it spawns) don't have the lock: one that outlives
its trainer may write to a clone that the next one has taken.

A job keeps two clones on a node, the trainer's and the spare's. The next trainer takes one that is
free, with what scripts have added: caches, and Python's compiled modules. The files that were sent
are again as they were sent.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from elasticd.removing import remove_tree
from elasticd.train.link.filecopy import copy_file

POOL = 2
"""Clones that are kept."""
MOST = 16
"""Clones at a time. One that was killed may take a while to die, with workers that it forked."""

CopyFile = Callable[[Path, Path], None]


@dataclass(frozen=True, slots=True)
class Clone:
    """This process has ``folder`` to itself until it releases it, or ends."""

    folder: Path
    _lock: int

    def release(self) -> None:
        os.close(self._lock)

    def __enter__(self) -> Clone:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


def clone_folder(sent: Path, pool: Path, copy: CopyFile = copy_file) -> Clone:
    """A clone of ``sent`` in the folder ``pool``, which holds nothing else.

    Raises:
        OSError: the disk doesn't do it, or too many clones are in use.
    """
    pool.mkdir(parents=True, exist_ok=True)
    for number in range(MOST):
        lock = _lock(pool, number)
        if lock is None:
            continue
        clone = Clone(pool / str(number), lock)
        try:
            _make_like(sent, clone.folder, copy)
        except BaseException:
            clone.release()
            raise
        _remove_more(pool)
        return clone
    raise OSError(f"{pool}: {MOST} processes still use the clones of the job's folder")


def _lock(pool: Path, number: int) -> int | None:
    """A descriptor that holds the lock of a clone; None: another process has it.

    The file stays when its clone goes: another process may be about to lock it.
    """
    lock = os.open(pool / f"{number}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    except BaseException:
        os.close(lock)
        raise
    return lock


def _remove_more(pool: Path) -> None:
    """Remove the clones that nobody uses beyond those that are kept."""
    for number in range(POOL, MOST):
        folder = pool / str(number)
        if folder.is_dir() and (lock := _lock(pool, number)) is not None:
            with contextlib.suppress(OSError):
                remove_tree(folder)
            os.close(lock)


def _make_like(sent: Path, folder: Path, copy: CopyFile) -> None:
    """Have every file of ``sent`` in ``folder``; other files there stay."""
    if folder.is_symlink() or not folder.is_dir():
        remove_tree(folder)
        folder.mkdir()
    with os.scandir(sent) as entries:
        for entry in entries:
            target = folder / entry.name
            if entry.is_dir(follow_symlinks=False):
                _make_like(Path(entry.path), target, copy)
            elif entry.is_file(follow_symlinks=False) and not _is_copy(entry, target):
                remove_tree(target)
                copy(Path(entry.path), target)


def _is_copy(entry: os.DirEntry[str], target: Path) -> bool:
    """By size, time and mode, as make and rsync tell. So a script that rewrites a file at the same
    size and sets its time back keeps what it wrote; docs/writing-jobs.md says so."""
    try:
        there = target.lstat()
    except FileNotFoundError:
        return False
    sent = entry.stat(follow_symlinks=False)
    return (there.st_size, there.st_mtime_ns, there.st_mode) == (
        sent.st_size, sent.st_mtime_ns, sent.st_mode,
    )  # fmt: skip
