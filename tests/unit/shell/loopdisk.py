"""Sees by an audit hook of Python's what a loop's own thread does to files and processes."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CALLS = frozenset(
    {
        "open", "os.chmod", "os.link", "os.listdir", "os.mkdir", "os.remove", "os.rename",
        "os.rmdir", "os.scandir", "os.symlink", "os.truncate", "os.utime", "shutil.rmtree",
        "subprocess.Popen",
    }
)  # fmt: skip
"""Names of https://docs.python.org/3/library/audit_events.html."""
_watched: dict[int, list[tuple[str, str]]] = {}
_hooked: list[bool] = []


def _seen(event: str, args: tuple[Any, ...]) -> None:
    if event in CALLS and (calls := _watched.get(threading.get_ident())) is not None:
        calls.append((event, str(args[0])))


@contextlib.contextmanager
def disk_calls(home: Path) -> Iterator[list[tuple[str, str]]]:
    """Those of this thread: what was called, and with which path below ``home``; of processes with
    whichever program. A hook stays for ever, and sees nothing outside of this."""
    if not _hooked:
        sys.addaudithook(_seen)
        _hooked.append(True)
    calls = _watched[threading.get_ident()] = []
    seen: list[tuple[str, str]] = []
    try:
        yield seen
    finally:
        del _watched[threading.get_ident()]
        seen += [c for c in calls if c[0] == "subprocess.Popen" or c[1].startswith(str(home))]
