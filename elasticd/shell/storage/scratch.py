"""Folders for what is brought here for a client: gone with its request, or at the next start."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path


class Scratch:
    """In the system's place for temporary files, not in the home: a large one may fill its disk,
    and the daemon needs that to live."""

    def __init__(self, home: Path) -> None:
        """``home`` has one daemon at a time: what bears its name at the start is of one that
        died."""
        name = hashlib.sha256(os.fsencode(home.absolute())).hexdigest()[:12]
        self._prefix = f"elasticd-scratch-{name}-"

    @contextlib.contextmanager
    def folder(self) -> Iterator[Path]:
        """A new one, for this account alone.

        Raises:
            OSError: none can be made.
        """
        with tempfile.TemporaryDirectory(prefix=self._prefix) as folder:
            yield Path(folder)

    def sweep(self) -> None:
        """Remove what a daemon of this home has left."""
        try:
            place = Path(tempfile.gettempdir())
        except OSError:  # there is none that can be written to
            return
        for path in place.glob(f"{self._prefix}*"):
            with contextlib.suppress(OSError):
                found = path.lstat()
                # Anybody may make something of that name there.
                if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid():
                    shutil.rmtree(path, ignore_errors=True)
