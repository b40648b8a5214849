"""How much memory this machine has, and how much of it is free: nobody else asks for that.

On macOS 27 psutil 7 raises when it is asked for either, and for what is swapped out, mostly from
some call of a process on (psutil, issue 2853). So the kernel is asked by name there.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psutil

from elasticd.sysctl import LibC, ask

_TOTAL, _FREE_PERCENT, _SWAP = b"hw.memsize", b"kern.memorystatus_level", b"vm.swapusage"
_UNASKED = (psutil.Error, OSError, RuntimeError, SystemError, LookupError, ValueError)
"""What psutil raises where it can't read what the kernel says."""


@dataclass(frozen=True, slots=True)
class MachineMemory:
    """Zero, None: the system doesn't say it."""

    total_bytes: int = 0
    available_bytes: int | None = None
    """What programs could have without that others are swapped out or end."""


class _SwapUse(ctypes.Structure):
    """``struct xsw_usage`` of Darwin's sys/sysctl.h."""

    _fields_ = (
        ("total", ctypes.c_uint64),
        ("available", ctypes.c_uint64),
        ("used", ctypes.c_uint64),
        ("page_bytes", ctypes.c_uint32),
        ("encrypted", ctypes.c_int32),
    )


def machine_memory(
    platform: str = sys.platform,
    libc: LibC | None = None,
    by_psutil: Callable[[], Any] = psutil.virtual_memory,
) -> MachineMemory:
    """As it is now; never raises. ``libc`` is macOS's."""
    if platform != "darwin":
        try:
            found = by_psutil()
        except _UNASKED:
            return MachineMemory()
        return MachineMemory(int(found.total), int(found.available))
    total, percent = ctypes.c_uint64(0), ctypes.c_uint32(0)
    if ask(_TOTAL, total, libc):
        return MachineMemory()
    if ask(_FREE_PERCENT, percent, libc):
        return MachineMemory(total.value)
    return MachineMemory(total.value, total.value * min(percent.value, 100) // 100)


def total_bytes() -> int:
    """Of this machine's memory; 0: the system doesn't say it."""
    return machine_memory().total_bytes


def swapped_bytes(
    platform: str = sys.platform,
    libc: LibC | None = None,
    by_psutil: Callable[[], Any] = psutil.swap_memory,
) -> int | None:
    """What of this machine's memory is swapped out; None: the system doesn't say it."""
    if platform != "darwin":
        try:
            return int(by_psutil().used)
        except _UNASKED:
            return None
    use = _SwapUse()
    return None if ask(_SWAP, use, libc) else use.used
