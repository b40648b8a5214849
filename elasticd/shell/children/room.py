"""How much memory is left: of the machine, and of the memory cgroups that processes are in."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import structlog

from elasticd.machinememory import MachineMemory, machine_memory
from elasticd.sysctl import LibC, ask

LEAST_LEFT = 0.04
"""Of the whole; with less, memory is about to run out."""
_WARNING_LEVEL, _CRITICAL_LEVEL = 2, 4
"""Of macOS's kern.memorystatus_vm_pressure_level, which is 1, 2 or 4. At 4 it kills already."""
_LEVEL = b"kern.memorystatus_vm_pressure_level"
_UNLIMITED_BYTES = 1 << 60
"""Version 1 of memory cgroups writes no limit as a number about as large as can be."""
_V1, _V2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
_CACHE = ("active_file", "inactive_file")
"""Contents of files, which the kernel gives up before it kills."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class LowMemory:
    reason: str
    left_bytes: int
    critical: bool = False
    """The system says itself that it kills."""
    mild: bool = False
    """It only warns: a Mac may do so for hours, with much of its memory left."""


def pressure(
    groups: Iterable[Path],
    platform: str = sys.platform,
    level_of: Callable[[], int] | None = None,
    memory: Callable[[], MachineMemory] = machine_memory,
) -> LowMemory | None:
    """Why memory is about to run out, on the machine or in one of these cgroups, if it is.
    ``level_of`` asks macOS, ``memory`` what the machine has."""
    left_bytes = (machine := memory()).available_bytes
    if platform == "darwin":
        level = (level_of or macos_level)()
        if level < _WARNING_LEVEL:
            return None
        text = f"macOS reports memory pressure {level} of 4"
        critical = level >= _CRITICAL_LEVEL
        # As much as before, if it isn't known: so no more is given up each time that it is said.
        known = max(1, machine.total_bytes) if left_bytes is None else left_bytes
        return LowMemory(text, known, critical=critical, mild=not critical)
    found = []
    if left_bytes is not None:
        found.append(_shortage(left_bytes, machine.total_bytes, "memory"))
    for one in {one for group in groups for one in _with_parents(group)}:
        if (room := left(one)) is not None:
            found.append(_shortage(*room, "memory of its cgroup"))
    return min((one for one in found if one), key=lambda one: one.left_bytes, default=None)


def _shortage(left_bytes: int, total_bytes: int, what: str) -> LowMemory | None:
    if left_bytes > LEAST_LEFT * total_bytes:
        return None
    text = f"{left_bytes >> 20} of {total_bytes >> 20} MiB of {what} are left"
    return LowMemory(text, left_bytes)


def macos_level(libc: LibC | None = None) -> int:
    """1, 2 or 4; 0: it can't be asked, which is logged once."""
    level = ctypes.c_int(0)
    if number := ask(_LEVEL, level, libc):
        _refused(number)
        return 0
    return level.value


@cache
def _refused(number: int) -> None:
    log.warning(
        "macOS does not say when memory is short: nothing is given back in time",
        asked=_LEVEL.decode(),
        error=os.strerror(number),
    )


def group_of(pid: int) -> Path | None:
    """The folder of a process's memory cgroup; None for the root's, or where there are none."""
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        _, controllers, path = line.split(":", 2)
        for root, mine in ((_V1, "memory" in controllers.split(",")), (_V2, not controllers)):
            folder = root / path.lstrip("/")
            if mine and path != "/" and folder.is_dir():
                return folder
    return None


def use(group: Path | None) -> tuple[int, int | None]:
    """(bytes used, limit) of a memory cgroup, version 1 or 2."""
    if group is None:
        return 0, None
    for used, limit in (
        ("memory.usage_in_bytes", "memory.limit_in_bytes"),
        ("memory.current", "memory.max"),
    ):
        with contextlib.suppress(OSError, ValueError):
            now = int((group / used).read_text())
            text = (group / limit).read_text().strip()
            most = None if text == "max" or int(text) >= _UNLIMITED_BYTES else int(text)
            return now, most
    return 0, None


def left(group: Path) -> tuple[int, int] | None:
    """(bytes that can still be had, limit) of a memory cgroup; None if it has no limit."""
    used, most = use(group)
    return None if most is None else (max(0, most - used + _cache_bytes(group)), most)


def kills(group: Path | None) -> int:
    """How often the kernel has killed in this cgroup for want of memory."""
    if group is None:
        return 0
    for name in ("memory.events", "memory.oom_control"):
        with contextlib.suppress(OSError, ValueError):
            return _fields(group / name)["oom_kill"]
    return 0


def _with_parents(group: Path) -> Iterator[Path]:
    """What limits a group: its own limit and those of the groups that it is in."""
    for one in (group, *group.parents):
        if one in (_V1, _V2):
            return
        yield one


def _cache_bytes(group: Path) -> int:
    """Of the group and those in it: version 1 counts them apart, under another name."""
    with contextlib.suppress(OSError, ValueError):
        fields = _fields(group / "memory.stat")
        return sum(fields.get(f"total_{name}", fields.get(name, 0)) for name in _CACHE)
    return 0


def _fields(path: Path) -> dict[str, int]:
    """A file of lines with a name and a number each."""
    lines = (line.partition(" ") for line in path.read_text().splitlines())
    return {name: int(value) for name, _, value in lines}
