"""The kernels that MLX's CPU build has compiled for this node's ranks, in its cache: they stay
within a bound. Each version of MLX and each new shape of a compiled function adds some.

What was used last stays. A kernel that is missing is compiled again, in a second or so.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

MOST_BYTES = 1 << 30
UNUSED_SECONDS = 2 * 86_400.0
"""What was used since may be about to be loaded, and stays whatever there is. Linux notes once a
day that a file is used (relatime), and on a disk mounted with noatime only when it was made: there
an old one may go that is in use. Who has loaded it keeps it; the next who needs it makes it again,
and that one stays."""


def keep_within(
    folder: Path, most_bytes: int | None = None, unused_seconds: float = UNUSED_SECONDS
) -> int:
    """Remove the files that were used longest ago until the others have so much at most; how many
    went. For a thread.

    Raises:
        OSError: one can't be removed.
    """
    most_bytes = MOST_BYTES if most_bytes is None else most_bytes
    found = sorted(_files(folder), reverse=True)
    before, kept, gone = time.time() - unused_seconds, 0, 0
    for used, size, path in found:
        kept += size
        if kept > most_bytes and used < before:
            path.unlink(missing_ok=True)
            kept -= size
            gone += 1
    return gone


def _files(folder: Path) -> Iterator[tuple[float, int, Path]]:
    """When each was used last, what it takes on the disk, and its path."""
    for parent, _, names in os.walk(folder):
        for name in names:
            path = Path(parent, name)
            try:
                stat = path.lstat()
            except OSError:  # a rank has just renamed it
                continue
            yield max(stat.st_atime, stat.st_mtime), stat.st_blocks * 512, path
