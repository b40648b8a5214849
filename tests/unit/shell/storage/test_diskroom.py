"""How much room a disk has, on Linux and as a Mac counts it."""

from __future__ import annotations

import ctypes
import os
import shutil
import struct
from pathlib import Path

import pytest

from elasticd.settings.volumes import Statfs
from elasticd.shell.storage.diskroom import DiskRoom, room_of

TIB = 1 << 40
BLOCK = 4096


def macs(total: int, free: int, status: int = 0, block: int = BLOCK) -> DiskRoom:
    """Of a Mac's volume, asked by a Python whose statvfs wraps."""
    wrapped = [n // BLOCK % (1 << 32) for n in (total, free, free)]
    vfs = os.statvfs_result((1 << 20, BLOCK, *wrapped, 0, 0, 0, 0, 255))

    def statfs(folder: bytes, found: Statfs) -> int:
        assert folder == b"/Volumes/big"
        counts = struct.pack(
            "=IiQQQ", block, 1 << 20, total // BLOCK, (free + TIB) // BLOCK, free // BLOCK
        )
        ctypes.memmove(ctypes.byref(found), counts, len(counts))
        return status

    return room_of(Path("/Volumes/big"), "darwin", lambda folder: vfs, statfs)


def test_a_large_volume_of_a_mac_is_counted_whole() -> None:
    assert ctypes.sizeof(Statfs) == 2168
    assert macs(20 * TIB, 17 * TIB) == DiskRoom(20 * TIB, 17 * TIB)
    assert macs(TIB, TIB // 2) == DiskRoom(TIB, TIB // 2)


@pytest.mark.parametrize("wrong", [{"status": -1}, {"block": 512}])
def test_what_does_not_agree_is_not_used(wrong: dict[str, int]) -> None:
    assert macs(20 * TIB, 17 * TIB, **wrong) == DiskRoom(4 * TIB, TIB)


def test_linux_is_asked_as_everybody_asks_it(tmp_path: Path) -> None:
    found, known = room_of(tmp_path), shutil.disk_usage(tmp_path)
    assert found.total_bytes == known.total
    assert abs(found.free_bytes - known.free) < 1 << 30  # others write meanwhile
