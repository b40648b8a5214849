"""Files that survive a power cut: written beside, synced, renamed, and the folder synced too."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO, Literal

from elasticd.checkpoints.medium import order_file, sync_file
from elasticd.checkpoints.sequential import write_all
from elasticd.errors import DiskError, naming
from elasticd.settings.diskroom import FULL

_PROBE_BYTES = 64 * 1024
PARTIAL_SUFFIX = ".partial"
"""Ends the name of a file that is still being written; a restart may remove every such file."""


def sync_folder(folder: Path) -> None:
    """Return once the names in ``folder`` (created, renamed, removed) are on the medium."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        sync_file(fd)
    finally:
        os.close(fd)


def settle(fd: int, partial: Path, path: Path) -> None:
    """Let ``path`` be what was written to ``partial``, which lies beside it and is open as ``fd``,
    so that a crash at any instant leaves the old or the new content, whole.

    Raises:
        OSError: the disk is full or broken; ``path`` still has its old content, unless only the
            folder could not be synced.
    """
    order_file(fd)
    partial.rename(path)
    sync_folder(path.parent)


def write_durable(
    path: Path,
    data: bytes | Iterable[bytes],
    mode: int = 0o600,
    owner: tuple[int, int] | None = None,
) -> None:
    """Replace ``path`` by ``data``, or by its parts, so that a crash at any instant leaves the old
    or the new content, whole. ``owner``: the account and the group whose it is to be, if not the
    caller's.

    One writer a path: the temporary name beside it is fixed, so that leftovers never pile up.

    Raises:
        OSError: the disk is full or broken; ``path`` still has its old content.
    """
    partial = path.with_name(path.name + PARTIAL_SUFFIX)
    with naming(path, partial):
        fd = _fresh(partial)
        try:
            os.fchmod(fd, mode)
            if owner is not None:
                os.fchown(fd, *owner)
            for part in (data,) if isinstance(data, bytes) else data:
                write_all(fd, part)
            settle(fd, partial, path)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
        finally:
            os.close(fd)


def write_whole(path: Path, data: bytes) -> None:
    """As :func:`write_durable` where a crash is of the process alone: nothing is synced."""
    partial = path.with_name(path.name + PARTIAL_SUFFIX)
    with naming(path, partial):
        try:
            with os.fdopen(_fresh(partial), "wb") as file:
                file.write(data)
            partial.replace(path)
        except OSError:
            with contextlib.suppress(OSError):
                partial.unlink()  # of a full disk it would take the last bytes
            raise


def _fresh(partial: Path) -> int:
    """A new file for this account alone. What lies there is removed and never written through:
    somebody may have laid a link."""
    partial.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(partial, flags, 0o600)


def open_private(path: Path, mode: Literal["wb", "ab"]) -> BinaryIO:
    """As ``path.open(mode)``; if it makes the file, it is for this account alone, whoever calls."""
    flags = os.O_TRUNC if mode == "wb" else os.O_APPEND
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | flags, 0o600)
    return os.fdopen(fd, mode)


def no_room(error: BaseException) -> bool:
    """Whether that is said by a disk that is full, or by one whose quota is."""
    cause = error.__cause__ if isinstance(error, DiskError) else error
    return isinstance(cause, OSError) and cause.errno in FULL


def unwritable(folder: Path) -> OSError | None:
    """What goes wrong when a few bytes are written in ``folder``; None: nothing that is the disk's
    doing."""
    probe = folder / f".probe{PARTIAL_SUFFIX}"
    try:
        write_durable(probe, b"x" * _PROBE_BYTES)
        probe.unlink()
    except OSError as error:
        return None if error.errno in (errno.EMFILE, errno.ENFILE) else error
    return None
