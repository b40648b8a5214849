"""An archive on its way into the folder of archives: on disk from its first byte on, so that many
at a time take no memory."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

from elasticd.archive import DIGEST_BYTES
from elasticd.checkpoints.sequential import write_all
from elasticd.errors import OperationError, ProtocolError, naming
from elasticd.shell.storage.durable import PARTIAL_SUFFIX, settle
from elasticd.shell.storage.namelessfile import slices

Settle = Callable[[int, Path, Path], None]


class Arrival:
    """One file, which goes unless it is kept. All of it blocks, and may be called in any thread:
    who was cancelled leaves one behind that still writes."""

    def __init__(self, folder: Path, settle: Settle = settle) -> None:
        self._folder, self._settle = folder, settle
        self._using = threading.Lock()
        self._file: tuple[int, Path] | None = None
        self._over = False

    def open(self) -> int:
        """The descriptor to write to. It stays this object's."""
        with self._using:
            return self._opened()[0]

    def write(self, data: bytes) -> None:
        """Append ``data``.

        Raises:
            OSError: the disk refuses.
        """
        with self._using:
            fd, partial = self._opened()
            with naming(partial):
                write_all(fd, data)

    def keep(self, digest: str, path: Path) -> None:
        """Let ``path`` be this file, durably.

        Raises:
            ProtocolError: it is not what the digest says.
            OSError: the disk refuses.
        """
        with self._using:
            fd, partial = self._opened()
            if digest_of(fd) != digest:
                raise ProtocolError("the archive's digest does not match")
            with naming(path):
                self._settle(fd, partial, path)
            os.close(fd)
            self._file, self._over = None, True

    def discard(self) -> None:
        """Remove it unless it was kept. It is of no more use."""
        with self._using:
            self._over = True
            if self._file is not None:
                fd, partial = self._file
                self._file = None
                os.close(fd)
                with contextlib.suppress(OSError):  # the next start removes it
                    partial.unlink()

    def _opened(self) -> tuple[int, Path]:
        if self._over:
            raise OperationError("nobody waits for the archive any more")
        if self._file is None:
            try:
                fd, name = tempfile.mkstemp(PARTIAL_SUFFIX, ".arriving-", self._folder)
            except OSError as error:
                error.filename = str(self._folder)  # nobody knows the file
                raise
            self._file = fd, Path(name)
        return self._file


def digest_of(fd: int) -> str:
    """The content hash of a file, which is read a piece at a time. Moves its position."""
    hashed = hashlib.blake2b(digest_size=DIGEST_BYTES)
    os.lseek(fd, 0, os.SEEK_SET)
    for piece in slices(fd):
        hashed.update(piece)
    return hashed.hexdigest()
