"""What macOS's kernel says under a name, by sysctlbyname(3)."""

from __future__ import annotations

import ctypes
from typing import Any, Protocol


class LibC(Protocol):
    """What is asked of macOS's C library."""

    def sysctlbyname(self, name: bytes, old: Any, old_bytes: Any, new: None, new_bytes: int) -> int:
        """As in sysctlbyname(3): 0, or -1 and errno."""


def ask(name: bytes, answer: Any, libc: LibC | None = None) -> int:
    """0, and ``answer``, of one of ctypes's types, is filled in; else the number of the error."""
    size = ctypes.c_size_t(ctypes.sizeof(answer))
    asked: Any = libc or ctypes.CDLL(None, use_errno=True)
    if asked.sysctlbyname(name, ctypes.byref(answer), ctypes.byref(size), None, 0):
        return ctypes.get_errno()
    return 0
