"""What the checkpoints ask of a disk, as a port: all that a crash or a full disk can interrupt.

The order of calls is what makes a checkpoint durable, so tests put a disk underneath that fails at
any of them.
"""

from __future__ import annotations

import itertools
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

from elasticd.checkpoints.apart import refuse_another
from elasticd.checkpoints.medium import Control, order_file, sync_file
from elasticd.checkpoints.sequential import Chunk, Writer, write_all
from elasticd.errors import DiskError, naming

Head = Callable[[], bytes]
Check = Callable[[Path], object]

TEMPORARY = ".tmp"
"""How a name ends that a crash may leave behind and that means nothing."""
_written = itertools.count()


class Disk(Protocol):
    """All raise :class:`OSError`. Nothing is durable before ``sync_folder`` of its folder, or
    ``order_folder`` of that and then ``sync_folder`` of another one."""

    def write(self, path: Path, chunks: Iterable[Chunk], head: Head | None = None) -> None:
        """Create or replace the file. No name that it is given later is durable before its content
        is. ``head``, asked for once all chunks are written, replaces as many bytes at the file's
        start."""

    def rename(self, old: Path, new: Path) -> None:
        """Atomic; replaces a file, or an empty folder."""

    def order_folder(self, folder: Path) -> None:
        """Let the names in ``folder`` be durable before anything that is done later."""

    def sync_folder(self, folder: Path) -> None:
        """Make the names in ``folder`` durable, and the files that have them."""

    def make_folder(self, folder: Path) -> None:
        """Make one folder."""

    def remove_file(self, path: Path) -> None:
        """No error if it is gone."""

    def remove_folder(self, folder: Path) -> None:
        """Remove it and all below; no error if it is gone."""


class LocalDisk:
    """The real one.

    A Mac's full flush takes 17 ms, and longer beside a large write. So there is one at the end of
    what belongs together, and barriers before it.
    """

    def __init__(self, here: str = sys.platform, control: Control | None = None) -> None:
        """``control``: fcntl(2), with a descriptor and a call."""
        self._here, self._control = here, control

    def write(self, path: Path, chunks: Iterable[Chunk], head: Head | None = None) -> None:
        # A file of its own: another account may have laid something under that name, be it a link.
        path.unlink(missing_ok=True)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            with Writer(fd) as out:
                for chunk in chunks:
                    out.take(chunk)
                out.finish()
            if head is not None:
                os.lseek(fd, 0, os.SEEK_SET)
                write_all(fd, head())
            order_file(fd, self._here, self._control)
        finally:
            os.close(fd)

    def rename(self, old: Path, new: Path) -> None:
        os.replace(old, new)

    def order_folder(self, folder: Path) -> None:
        with _opened(folder) as fd:
            order_file(fd, self._here, self._control)

    def sync_folder(self, folder: Path) -> None:
        with _opened(folder) as fd:
            sync_file(fd, self._here, self._control)

    def make_folder(self, folder: Path) -> None:
        folder.mkdir()

    def remove_file(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def remove_folder(self, folder: Path) -> None:
        with suppress(FileNotFoundError):
            shutil.rmtree(folder)


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


LOCAL_DISK: Disk = LocalDisk()


def make_folders(disk: Disk, folder: Path, root: Path) -> None:
    """Make ``folder`` and what is missing between it and ``root``, durably. The root is never made:
    where that is gone its disk is, and what was made in its place would lie on another one.

    Raises:
        DiskError: it refuses, or the root isn't there, or is another folder than it was.
    """
    with refusing(root):
        refuse_another(root)
    _make_below(disk, folder, root)


def _make_below(disk: Disk, folder: Path, root: Path) -> None:
    if folder.is_dir():
        return
    if folder == root:
        raise DiskError(f"{root}: is gone; mount the disk that it is on, or make the folder")
    _make_below(disk, folder.parent, root)
    with refusing(folder):
        with suppress(FileExistsError):
            disk.make_folder(folder)
        disk.sync_folder(folder.parent)


@contextmanager
def filling(disk: Disk, folder: Path, root: Path) -> Iterator[None]:
    """Have ``folder``, as :func:`make_folders` makes it. If the disk then refuses what is written
    there, an empty one goes again: a disk that stays full gets no more and more of them.

    Raises:
        DiskError: it refuses.
    """
    try:
        make_folders(disk, folder, root)
        yield
    except DiskError:
        with suppress(OSError):  # there is something in it
            folder.rmdir()
        raise


def write_beside(
    disk: Disk,
    path: Path,
    chunks: Iterable[Chunk],
    head: Head | None = None,
    check: Check = lambda path: None,
    *,
    contested: bool = False,
    last: bool = True,
) -> None:
    """Write ``path`` so that its name never stands for less than all of it; durable on return.
    Unless it is the ``last`` of what belongs together: then it is once the rest is.

    ``check`` looks at what was written, before it has that name. ``contested``: others may write it
    at the same time, another process too; what the last one wrote stays. A crash then leaves a name
    that no later write takes away.

    Raises:
        DiskError: it refuses (full, read-only, no permission), or whatever ``chunks`` and ``check``
            raise; nothing but the old file, if there was one, is left.
    """
    own = f".{os.getpid()}-{next(_written)}" if contested else ""
    beside = path.with_name(f"{path.name}{own}{TEMPORARY}")
    with refusing(path), naming(path, beside):
        renamed = False
        try:
            disk.write(beside, chunks, head)
            check(beside)
            disk.rename(beside, path)
            renamed = True
        finally:
            if not renamed:
                with suppress(OSError):
                    disk.remove_file(beside)
        (disk.sync_folder if last else disk.order_folder)(path.parent)


@contextmanager
def refusing(path: Path) -> Iterator[None]:
    """Turn what the disk refuses into a :class:`DiskError` that names the path."""
    try:
        yield
    except OSError as error:
        from elasticd.settings.diskroom import refusal  # only then is needed what that loads

        raise DiskError(refusal(error, path)) from error
