"""What may have a name that a user says, and is no file: nothing may take its place."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

SORTS = {
    "pipe": "is a pipe",
    "socket": "is a socket",
    "link to a pipe": "is a pipe",
    "link to nowhere": "is a link that leads to no file",
    "links in a ring": "is a link that leads to no file",
}
"""Each with what is said of it."""


@contextlib.contextmanager
def no_file(path: Path, sort: str) -> Iterator[Callable[[], bool]]:
    """Lay it there, and take it away behind; whether it is still what it was."""
    other = path.with_name(f"{path.name}.other")
    match sort:
        case "pipe":
            os.mkfifo(path)
        case "socket":
            with socket.socket(socket.AF_UNIX) as made, contextlib.chdir(path.parent):
                made.bind(path.name)
        case "link to a pipe":
            os.mkfifo(other)
            path.symlink_to(other)
        case "link to nowhere":
            path.symlink_to(other)
        case "links in a ring":
            path.symlink_to(path)
    before = path.lstat()
    yield lambda: os.path.samestat(path.lstat(), before)
    path.unlink()
    other.unlink(missing_ok=True)
