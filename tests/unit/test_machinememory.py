"""What this machine has of memory, from both systems; macOS's from a fake of its kernel's names."""

from __future__ import annotations

import ctypes
import errno
import struct
import sys
from typing import Any

import pytest

from elasticd.machinememory import MachineMemory, machine_memory, swapped_bytes

GIB = 1 << 30


class Kernel:
    """As sysctlbyname(3) of Darwin, for the names that it knows."""

    def __init__(self, **told: bytes) -> None:
        self._told = {name.replace("_", ".", 1).encode(): value for name, value in told.items()}

    def sysctlbyname(self, name: bytes, old: Any, old_bytes: Any, new: None, new_bytes: int) -> int:
        assert (new, new_bytes) == (None, 0)
        value = self._told.get(name)
        if value is None or old_bytes._obj.value < len(value):
            ctypes.set_errno(errno.ENOENT if value is None else errno.ENOMEM)
            return -1
        ctypes.memmove(old, value, len(value))
        old_bytes._obj.value = len(value)
        return 0


def raises() -> Any:
    """psutil 7 on macOS 27 (its issue 2853)."""
    raise RuntimeError("host_statistics64(HOST_VM_INFO64) syscall failed")


def narrow(value: int) -> bytes:
    return struct.pack("=I", value)


def wide(value: int) -> bytes:
    return struct.pack("=Q", value)


PAGES = {  # of 16 KiB: 1, 2 and 0.5 GiB of the 12 that are neither wired nor compressed
    "vm_pagesize": narrow(1 << 14),
    "vm_page_free_count": narrow(1 << 16),
    "vm_page_pageable_external_count": narrow(1 << 17),
    "vm_page_purgeable_count": narrow(1 << 15),
}
LEVEL = {"hw_memsize": wide(16 * GIB), "kern_memorystatus_level": narrow(75)}
MAC = Kernel(**LEVEL, **PAGES)
WIDER = {**PAGES, "vm_page_purgeable_count": wide(1 << 15)}
"""As macOS 26 has it."""


def less(told: dict[str, bytes], name: str) -> dict[str, bytes]:
    return {known: value for known, value in told.items() if known != name}


@pytest.mark.parametrize("system", ["linux", "darwin"])
def test_what_a_machine_has_is_more_than_what_is_free(system: str) -> None:
    if system == "linux" != sys.platform:
        pytest.skip("only Linux is asked by psutil")
    found = machine_memory(system, MAC)
    assert found.available_bytes is not None
    assert 0 < found.available_bytes < found.total_bytes
    assert type(found.total_bytes) is type(found.available_bytes) is int


@pytest.mark.parametrize(
    ("kernel", "memory"),
    [
        (MAC, (16 * GIB, 7 * GIB // 2)),
        (Kernel(**LEVEL, **WIDER), (16 * GIB, 7 * GIB // 2)),
        (Kernel(**LEVEL, **PAGES | {"vm_page_free_count": narrow(1 << 21)}), (16 * GIB, 16 * GIB)),
        (Kernel(**LEVEL, **dict.fromkeys(PAGES, narrow(0))), (16 * GIB, 0)),
        (Kernel(**LEVEL), (16 * GIB, 12 * GIB)),
        *((Kernel(**LEVEL, **less(PAGES, name)), (16 * GIB, 12 * GIB)) for name in PAGES),
        (Kernel(**LEVEL | {"kern_memorystatus_level": narrow(0)}), (16 * GIB, 0)),
        (Kernel(hw_memsize=wide(16 * GIB)), (16 * GIB, None)),
        (Kernel(**less(LEVEL, "hw_memsize"), **PAGES), (0, None)),
        (Kernel(), (0, None)),
    ],
)
def test_a_mac_says_it_itself_however_often_psutil_raises(
    kernel: Kernel, memory: tuple[int, int | None]
) -> None:
    for _ in range(5):
        assert machine_memory("darwin", kernel, raises) == MachineMemory(*memory)


def test_a_mac_says_itself_what_is_swapped_out() -> None:
    """``struct xsw_usage``: what there is, what of it is free, what is used, a page, encrypted."""
    use = struct.pack("=QQQIi", 3 * GIB, GIB, 2 * GIB, 1 << 14, 1)
    assert swapped_bytes("darwin", Kernel(vm_swapusage=use), raises) == 2 * GIB
    assert swapped_bytes("darwin", Kernel(), raises) is None


@pytest.mark.parametrize("error", [RuntimeError, SystemError, OSError, ValueError, KeyError])
def test_what_psutil_cannot_say_is_not_known(error: type[Exception]) -> None:
    def broken() -> Any:
        raise error("not now")

    assert machine_memory("linux", None, broken) == MachineMemory(0, None)
    assert swapped_bytes("linux", None, broken) is None
