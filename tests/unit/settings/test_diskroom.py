"""How much room a disk has, on Linux and as a Mac counts it."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import struct
from pathlib import Path

import pytest

from elasticd.checkpoints.disk import LocalDisk, write_beside
from elasticd.errors import DiskError
from elasticd.settings.diskroom import DiskRoom, refusal, room_of, takes_no_more
from elasticd.settings.volumes import Statfs
from tests.tinydisk import tiny_disk

TIB = 1 << 40
BLOCK = 4096


def macs(
    total: int, free: int, status: int = 0, block: int = BLOCK, files: int = 1 << 33
) -> DiskRoom:
    """Of a Mac's volume, asked by a Python whose statvfs wraps."""
    wrapped = [n // BLOCK % (1 << 32) for n in (total, free, free)]
    vfs = os.statvfs_result((1 << 20, BLOCK, *wrapped, 7, 1, 1, 0, 255))

    def statfs(folder: bytes, found: Statfs) -> int:
        assert folder == b"/Volumes/big"
        counts = struct.pack(
            "=IiQQQQQ",
            block,
            1 << 20,
            total // BLOCK,
            (free + TIB) // BLOCK,
            free // BLOCK,
            files,
            files // 2,
        )
        ctypes.memmove(ctypes.byref(found), counts, len(counts))
        return status

    return room_of(Path("/Volumes/big"), "darwin", lambda folder: vfs, statfs)


def test_a_large_volume_of_a_mac_is_counted_whole() -> None:
    assert ctypes.sizeof(Statfs) == 2168
    assert macs(20 * TIB, 17 * TIB) == DiskRoom(20 * TIB, 17 * TIB, 1 << 32)
    assert macs(TIB, TIB // 2, files=0) == DiskRoom(TIB, TIB // 2, None)


@pytest.mark.parametrize("wrong", [{"status": -1}, {"block": 512}])
def test_what_does_not_agree_is_not_used(wrong: dict[str, int]) -> None:
    assert macs(20 * TIB, 17 * TIB, **wrong) == DiskRoom(4 * TIB, TIB, None)


def test_linux_is_asked_as_everybody_asks_it(tmp_path: Path) -> None:
    found, known = room_of(tmp_path), shutil.disk_usage(tmp_path)
    assert found.total_bytes == known.total
    assert abs(found.free_bytes - known.free) < 1 << 30  # others write meanwhile


def linux(files: int, free_files: int) -> DiskRoom:
    vfs = os.statvfs_result((BLOCK, BLOCK, 8, 4, 4, files, free_files + 9, free_files, 0, 255))
    return room_of(Path("/data"), "linux", lambda folder: vfs)


def test_how_many_files_a_disk_still_takes_is_known_where_it_says_so() -> None:
    """Btrfs counts none."""
    assert linux(600, 3) == DiskRoom(8 * BLOCK, 4 * BLOCK, 3)
    assert linux(600, 0).free_files == 0 and linux(0, 0).free_files is None


def test_what_a_disk_refuses_is_said_with_the_path(tmp_path: Path) -> None:
    full = OSError(errno.ENOSPC, "No space left on device", str(tmp_path / "none" / "x"))
    assert refusal(full) == f"{tmp_path}/none/x: No space left on device"
    assert refusal(OSError(errno.EIO, "It broke"), tmp_path) == f"{tmp_path}: It broke"
    assert refusal(OSError("it broke")) == "it broke"


@pytest.mark.process
def test_a_disk_without_room_for_more_files_is_told_from_one_that_is_full(tmp_path: Path) -> None:
    with tiny_disk(tmp_path, "4m", 20):
        assert not takes_no_more(tmp_path)
        for number in range(10):
            (tmp_path / str(number)).touch()
        assert takes_no_more(tmp_path / "none" / "x")
        with pytest.raises(OSError, match="No space left") as caught:
            for number in range(10, 99):
                (tmp_path / str(number)).touch()
        said = refusal(caught.value)
        assert said.startswith(f"{tmp_path}/19: No space left on device (its disk takes no more")
        with pytest.raises(DiskError, match="remove many small ones there"):
            write_beside(LocalDisk(), tmp_path / "y", [b"x"])
        broken = OSError(errno.EIO, "It broke", str(tmp_path))
        assert refusal(broken) == f"{tmp_path}: It broke"
