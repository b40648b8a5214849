"""Memory without a name, which goes with its last descriptor."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any


def nameless(platform: str, name: str) -> int:
    """Memory without a name that is still empty; ``name`` is shown in lists of open files.

    On macOS it takes one size, which is rounded up to whole pages, and can neither be read nor
    written: it has to be mapped (XNU, posix_shm.c).
    """
    if sys.platform == "linux" and platform == "linux":
        return os.memfd_create(name, os.MFD_CLOEXEC)
    # What multiprocessing.shared_memory stands on.
    posixshmem: Any = importlib.import_module("_posixshmem")
    path = f"/elasticd-{os.urandom(8).hex()}"
    fd: int = posixshmem.shm_open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode=0o600)
    posixshmem.shm_unlink(path)
    return fd
