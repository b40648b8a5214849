"""Which processes a daemon has started, on disk, so that its successor can take them over, or end
them.

Atomic but not synced: a power cut, the only thing that a sync would help against, ends the
processes themselves.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, get_args

import psutil

from elasticd.errors import naming
from elasticd.supervision.birth import UNSEEN, is_same
from elasticd.supervision.naming import is_copied, of_home
from elasticd.types import Role


@dataclass(frozen=True, slots=True)
class ChildEntry:
    """One process: its pid and when it was born, together unique, and what it is for.

    Attributes:
        create_time: in Unix seconds, for people, and for versions that know no ``born``.
        nonce: by which it shows that it is this process; empty: it can't be taken over.
        job: of a trainer.
        spare: whether it was started as a spare.
        log: where it prints.
        born: as :func:`~elasticd.supervision.birth.birth` says it.
    """

    pid: int
    create_time: float
    role: Role
    nonce: str = ""
    job: str = ""
    spare: bool = False
    log: str = ""
    born: str = ""


class ChildRoster:
    """The list of a daemon's processes in ``path``, rewritten at each change."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._entries: dict[int, ChildEntry] = {}

    def add(self, entry: ChildEntry) -> None:
        """Write down a process that has just been started, or anew what has changed of it."""
        self._entries[entry.pid] = entry
        self._write()

    def remove(self, entry: ChildEntry) -> None:
        """Strike a process that has ended and was reaped. Its pid may be that of another by now."""
        known = self._entries.get(entry.pid)
        if known is not None and known.nonce == entry.nonce:
            del self._entries[entry.pid]
            self._write()

    def _write(self) -> None:
        beside = self._path.with_name(self._path.name + ".partial")
        try:
            with naming(beside):
                home = of_home(self._path.parent)
                told = [{**asdict(entry), **home} for entry in self._entries.values()]
                beside.write_text(json.dumps(told))
                beside.replace(self._path)
        except OSError:
            with contextlib.suppress(OSError):
                beside.unlink()  # of a full disk it would take the last bytes
            if self._entries:
                raise
            self._path.unlink(missing_ok=True)  # that says the same, and needs no room

    def living(self) -> list[ChildEntry]:
        """What an earlier daemon wrote down and is still running; changes nothing."""
        return [entry for entry in self._read() if _find(entry) is not None]

    def take_over(self) -> list[ChildEntry]:
        """What an earlier daemon wrote down, is still running and can be taken over; the rest of it
        is killed. To be called before the first ``add``.
        """
        for entry in self.living():
            if entry.nonce:
                self._entries[entry.pid] = entry
            else:
                kill_group(entry.pid)
        self._write()
        return list(self._entries.values())

    def end_leftovers(self, wait_seconds: float = 5.0) -> list[ChildEntry]:
        """SIGKILL what an earlier daemon wrote down and is still running; returns those entries.

        Blocks until they are gone, at most ``wait_seconds``. A pid that now belongs to another
        process is left alone. To be called before the first ``add``.
        """
        ended = [(entry, found) for entry in self._read() if (found := _find(entry)) is not None]
        for _, process in ended:
            kill_group(process.pid)
        _wait((process for _, process in ended), time.monotonic() + wait_seconds)
        self._entries.clear()
        self._write()
        return [entry for entry, _ in ended]

    def _read(self) -> list[ChildEntry]:
        # Whatever is no list of entries was not written by us: nothing can be killed by it. Nor by
        # one that came here with a copy of the home in which they run.
        try:
            items = json.loads(self._path.read_bytes())
            return [_entry(item) for item in items if not is_copied(item, self._path.parent)]
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return []


def _entry(item: Mapping[str, Any]) -> ChildEntry:
    entry = ChildEntry(
        int(item["pid"]), float(item["create_time"]), item["role"], str(item.get("nonce", "")),
        str(item.get("job", "")), bool(item.get("spare", False)), str(item.get("log", "")),
        str(item.get("born", "")),
    )  # fmt: skip
    # What another version has started for something else can't be taken over, only ended.
    return entry if entry.role in get_args(Role) else replace(entry, role="trainer", nonce="")


def kill_group(pid: int) -> None:
    """SIGKILL an unreaped session leader and what it started in its session.

    A process that leads no group of its own is killed alone. The leader may be a zombie: macOS says
    then that there is no such process when it is asked for its group (getpgid), and what it has
    started lives on.
    """
    # macOS answers EPERM for a group whose members have all ended.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        try:
            os.killpg(pid, signal.SIGKILL)
        except ProcessLookupError:
            os.kill(pid, signal.SIGKILL)


def end_session(entry: ChildEntry) -> None:
    """SIGKILL what is left of the session that an ended process, not ours to reap, has led."""
    try:
        if not is_same(entry.pid, entry.born, entry.create_time):
            return  # the number belongs to another by now
    except UNSEEN:
        pass
    if entry.pid > 1:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(entry.pid, signal.SIGKILL)


def _find(entry: ChildEntry) -> psutil.Process | None:
    if entry.pid <= 1:
        return None
    try:
        process = psutil.Process(entry.pid)
        same = is_same(entry.pid, entry.born, entry.create_time)
        ended = process.status() == psutil.STATUS_ZOMBIE
    except UNSEEN:
        return None
    return process if same and not ended else None


def _wait(processes: Iterable[psutil.Process], deadline: float) -> None:
    # An ended process whose new parent doesn't reap (pid 1 of a container) stays as a zombie.
    left = list(processes)
    while (left := [process for process in left if _runs(process)]) and time.monotonic() < deadline:
        psutil.wait_procs(left, timeout=0.05)


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except UNSEEN:
        return False
