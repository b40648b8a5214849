"""Unix sockets at paths of any length: a socket's address has room for a short one only."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import threading
from collections.abc import Iterator

# sun_path holds 104 bytes on macOS and 108 on Linux, with the closing zero.
_SHORT_BYTES = 100
_CHDIR = threading.Lock()
"""A process has one working folder."""


def _is_short(path: str) -> bool:
    return len(os.fsencode(path)) <= _SHORT_BYTES


@contextlib.contextmanager
def addressed(path: str | os.PathLike[str]) -> Iterator[str]:
    """What to bind or connect to for ``path``, while this is entered.

    For a path that is too long that is its name alone, and the working folder is another one
    meanwhile: no other thread should open files by relative names. Threads that are here at once
    take turns.

    Raises:
        OSError: its folder is missing, or not ours to enter.
    """
    path = os.fspath(path)
    if _is_short(path):
        yield path
        return
    with _CHDIR, contextlib.chdir(os.path.dirname(path)):
        yield os.path.basename(path)


@contextlib.contextmanager
def addressed_aside(path: str | os.PathLike[str], platform: str = sys.platform) -> Iterator[str]:
    """As :func:`addressed`, but the working folder stays: other threads may need it.

    Raises:
        OSError: its folder is missing, or there is no room for a link to it.
    """
    path = os.fspath(path)
    if _is_short(path):
        yield path
    elif sys.platform == "linux" and platform == "linux":
        folder = os.open(os.path.dirname(path), os.O_PATH | os.O_DIRECTORY)
        try:
            yield f"/proc/self/fd/{folder}/{os.path.basename(path)}"
        finally:
            os.close(folder)
    else:
        with tempfile.TemporaryDirectory(dir="/tmp", prefix="elasticd-") as near:
            link = os.path.join(near, "d")
            os.symlink(os.path.dirname(path), link)
            yield f"{link}/{os.path.basename(path)}"
