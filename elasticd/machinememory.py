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

_TOTAL, _SWAP = b"hw.memsize", b"vm.swapusage"
_PAGE_BYTES = b"vm.pagesize"
"""Of the kernel, which counts in these; hw.pagesize is the asking process's."""
_LET_GO = (b"vm.page_free_count", b"vm.page_pageable_external_count", b"vm.page_purgeable_count")
"""Pages that hold nothing; contents of files, with what is read ahead; what its owner can miss."""
_LEVEL_PERCENT = b"kern.memorystatus_level"
"""What is neither wired nor compressed. So it has also what other programs are at work with."""
_UNASKED = (psutil.Error, OSError, RuntimeError, SystemError, LookupError, ValueError)
"""What psutil raises where it can't read what the kernel says."""


@dataclass(frozen=True, slots=True)
class MachineMemory:
    """Zero, None: the system doesn't say it."""

    total_bytes: int = 0
    available_bytes: int | None = None
    """What programs could have without that others' memory is compressed or swapped out, or they
    end. Of a Mac that doesn't count its pages it is more: also what can be compressed."""


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
    total = _number(_TOTAL, libc)
    return MachineMemory(total, _let_go(total, libc)) if total else MachineMemory()


def _let_go(total: int, libc: LibC | None) -> int | None:
    page, *counts = (_number(name, libc) for name in (_PAGE_BYTES, *_LET_GO))
    known = [count for count in counts if count is not None]
    if page is not None and len(known) == len(_LET_GO):
        return min(sum(known) * page, total)
    percent = _number(_LEVEL_PERCENT, libc)
    return None if percent is None else total * min(percent, 100) // 100


def _number(name: bytes, libc: LibC | None) -> int | None:
    """Of 32 or 64 bits, as macOS's versions differ in that: a Mac's low bits are the first."""
    answer = ctypes.c_uint64(0)
    return None if ask(name, answer, libc) else answer.value


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
