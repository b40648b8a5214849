"""Shared memory as XNU has it, on Linux: it is mapped, and neither read nor written.

On a Mac the system's own is used.
"""

from __future__ import annotations

import errno
import mmap
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

REFUSED = {
    # lseek(2), and preparefileread of pread(2): no vnode.
    "lseek": errno.ESPIPE,
    "pread": errno.ESPIPE,
    "preadv": errno.ESPIPE,
    # bsd/kern/posix_shm.c, pshmops: fo_no_read, fo_no_write.
    "read": errno.ENXIO,
    "write": errno.ENXIO,
}


def is_shared(fd: int) -> bool:
    """Whether it is memory that ``nameless`` has made as on macOS."""
    if sys.platform == "linux":
        return os.readlink(f"/proc/self/fd/{fd}").startswith("/dev/shm/elasticd-")
    try:
        os.lseek(fd, 0, os.SEEK_CUR)
    except OSError as error:
        return error.errno == errno.ESPIPE
    return False


@contextmanager
def as_on_a_mac() -> Iterator[None]:
    """Meanwhile the calls answer as there."""
    if sys.platform != "linux":
        yield
        return
    with pytest.MonkeyPatch.context() as darwin:
        for name, number in REFUSED.items():
            darwin.setattr(os, name, _refusing(getattr(os, name), number))
        darwin.setattr(os, "ftruncate", _once_and_in_pages(os.ftruncate))
        yield


def _refusing(call: Callable[..., Any], number: int) -> Callable[..., Any]:
    def called(fd: int, *rest: Any) -> Any:
        if is_shared(fd):
            raise OSError(number, os.strerror(number))
        return call(fd, *rest)

    return called


def _once_and_in_pages(call: Callable[[int, int], None]) -> Callable[[int, int], None]:
    def called(fd: int, length: int) -> None:
        if not is_shared(fd):
            call(fd, length)
            return
        if os.fstat(fd).st_size:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        call(fd, length + -length % mmap.PAGESIZE)

    return called
