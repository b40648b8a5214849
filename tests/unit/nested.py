"""Folders in each other, however long their path is."""

from __future__ import annotations

import os
from pathlib import Path


def nest(folder: Path, name: str, levels: int) -> Path:
    """So many of them in ``folder``, which is made if need be, with a file in the last."""
    folder.mkdir(exist_ok=True)
    fd = os.open(folder, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir(name, dir_fd=fd)
        inner = os.open(name, os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = inner
    os.close(os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=fd))
    os.close(fd)
    return folder
