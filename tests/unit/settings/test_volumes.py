"""What is read from what a Mac's statfs fills in."""

from __future__ import annotations

import ctypes
import struct
from pathlib import Path

import pytest

from elasticd.settings.volumes import Statfs, Volume, without_owners

LOCAL, IGNORES = 0x1000, 0x0020_0000


def asked(flags: int, mounted: bytes = b"/Volumes/My disk", status: int = 0) -> Volume | None:
    def statfs(folder: bytes, found: Statfs) -> int:
        assert folder == b"/Volumes/My disk/home"
        told = struct.pack("=Ii5Q2iIIII", 4096, 1 << 20, *[9] * 5, 1, 2, 501, 26, flags, 0)
        told += struct.pack("=16s1024s1024s32x", b"apfs", mounted, b"/dev/disk4s1")
        assert len(told) == ctypes.sizeof(found) == 2168
        ctypes.memmove(ctypes.byref(found), told, len(told))
        return status

    return without_owners(Path("/Volumes/My disk/home"), statfs)


def test_a_disk_that_ignores_owners_is_named() -> None:
    assert asked(LOCAL | IGNORES) == Volume("/Volumes/My disk", "apfs")
    assert asked(LOCAL) is None


@pytest.mark.parametrize("wrong", [{"status": -1}, {"mounted": b"\x01"}])
def test_what_was_not_told_is_not_believed(wrong: dict[str, int]) -> None:
    assert asked(LOCAL | IGNORES, **wrong) is None  # type: ignore[arg-type]
