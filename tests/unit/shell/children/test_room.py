"""What macOS says of short memory, from a fake of its C library, and what memory cgroups say, from
files as the kernel writes them."""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from elasticd.machinememory import MachineMemory
from elasticd.recovery.headroom import Headroom
from elasticd.shell.children import room

MIB = 1 << 20
V1 = ("memory.usage_in_bytes", "memory.limit_in_bytes", "total_")
V2 = ("memory.current", "memory.max", "")

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has cgroups")


class LibC:
    """As in sysctlbyname(3) of Darwin, for the one name."""

    def __init__(self, level: int | None) -> None:
        """None: it has no such name."""
        self._level = level

    def sysctlbyname(self, name: bytes, old: Any, old_bytes: Any, new: None, new_bytes: int) -> int:
        assert name == b"kern.memorystatus_vm_pressure_level" and (new, new_bytes) == (None, 0)
        assert isinstance(old._obj, ctypes.c_int) and isinstance(old_bytes._obj, ctypes.c_size_t)
        assert old_bytes._obj.value == ctypes.sizeof(ctypes.c_int) == 4
        if self._level is None:
            ctypes.set_errno(errno.ENOENT)
            return -1
        old._obj.value = self._level
        return 0


@pytest.mark.parametrize(("level", "short"), [(0, False), (1, False), (2, True), (4, True)])
def test_a_mac_says_itself_when_memory_is_short(level: int, short: bool) -> None:
    """1 normal, 2 warning, 4 critical (XNU, kern_memorystatus_notify.h); 0: it can't be asked."""
    found = room.pressure([], "darwin", lambda: room.macos_level(LibC(level)))
    assert (found is not None) == short
    if found is not None:
        assert found.reason == f"macOS reports memory pressure {level} of 4"
        assert (found.critical, found.mild) == (level == 4, level == 2)


def test_a_mac_that_does_not_say_it_is_logged_once() -> None:
    room._refused.cache_clear()
    with capture_logs() as lines:
        for _ in range(3):
            assert room.pressure([], "darwin", lambda: room.macos_level(LibC(None))) is None
    (line,) = lines
    assert "does not say when memory is short" in line["event"]
    assert (line["asked"], line["error"]) == (room._LEVEL.decode(), os.strerror(errno.ENOENT))


NOT_KNOWN = MachineMemory()


def test_what_a_mac_does_not_say_is_left_of_it_is_never_less_than_before() -> None:
    """What has fallen makes a trainer give up more."""
    found = room.pressure([], "darwin", lambda: 4, lambda: NOT_KNOWN)
    assert found is not None and found.critical
    headroom = Headroom()
    given = [headroom.sign(found.left_bytes, has_spare=True) for _ in range(3)]
    assert given == ["spare", None, None]


def test_where_what_is_left_is_not_known_only_groups_are_judged(tmp_path: Path) -> None:
    assert room.pressure([], "linux", memory=lambda: NOT_KNOWN) is None


def group(folder: Path, version: tuple[str, str, str], used: int, limit: str, cache: int) -> Path:
    """A memory cgroup with so many MiB in use, of which ``cache`` are contents of files."""
    folder.mkdir(parents=True, exist_ok=True)
    usage_name, limit_name, prefix = version
    (folder / usage_name).write_text(f"{used * MIB}\n")
    (folder / limit_name).write_text(f"{limit}\n")
    own = "active_file 0\ninactive_file 0\n" if prefix else ""
    half = cache * MIB // 2
    stat = f"anon 1\n{own}{prefix}active_file {half}\n{prefix}inactive_file {half}\n"
    (folder / "memory.stat").write_text(stat)
    return folder


@LINUX
@pytest.mark.parametrize("version", [V1, V2])
def test_a_group_that_is_nearly_full(tmp_path: Path, version: tuple[str, str, str]) -> None:
    full = group(tmp_path / "full", version, 970, str(1000 * MIB), 0)
    found = room.pressure([full])
    assert found == room.LowMemory("30 of 1000 MiB of memory of its cgroup are left", 30 * MIB)
    nearly = group(tmp_path / "nearly", version, 950, str(1000 * MIB), 0)
    assert room.pressure([nearly]) is None
    assert room.pressure([nearly, full]) == found


@LINUX
@pytest.mark.parametrize("version", [V1, V2])
def test_contents_of_files_are_no_use(tmp_path: Path, version: tuple[str, str, str]) -> None:
    assert room.pressure([group(tmp_path, version, 995, str(1000 * MIB), 600)]) is None


@LINUX
@pytest.mark.parametrize(("version", "limit"), [(V1, str((1 << 63) - 4096)), (V2, "max")])
def test_a_group_without_a_limit(tmp_path: Path, version: tuple[str, str, str], limit: str) -> None:
    path = group(tmp_path, version, 970, limit, 0)
    assert room.use(path) == (970 * MIB, None)
    assert room.pressure([path]) is None


@LINUX
def test_the_group_that_a_group_is_in_counts(tmp_path: Path) -> None:
    group(tmp_path / "slice", V2, 990, str(1000 * MIB), 0)
    inner = group(tmp_path / "slice" / "unit", V2, 20, "max", 0)
    found = room.pressure([inner])
    assert found is not None and found.left_bytes == 10 * MIB


@LINUX
def test_a_group_that_is_gone(tmp_path: Path) -> None:
    assert room.pressure([tmp_path / "gone"]) is None
    assert room.kills(tmp_path / "gone") == 0


@pytest.mark.parametrize("name", ["memory.events", "memory.oom_control"])
def test_kills_are_counted(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("under_oom 0\noom_kill 3\n")
    assert room.kills(tmp_path) == 3


@LINUX
def test_our_own_group_is_found_or_the_root() -> None:
    found = room.group_of(os.getpid())
    assert found is None or found.is_dir()
