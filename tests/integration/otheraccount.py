"""Another account of this machine: what it gets at when it tries. Takes root on a Unix."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import socket
import stat
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

NAME = "nobody"
Found = dict[str, list[str]]


def need_root() -> None:
    """Skip where no other account can be taken."""
    if os.geteuid() != 0:
        pytest.skip("taking another account takes root")
    try:
        pwd.getpwnam(NAME)
    except KeyError:
        pytest.skip(f"this machine has no account {NAME!r}")


def as_other(probe: Callable[[], Any]) -> Any:
    """What ``probe`` returns, in a process of the other account that is forked from this one: that
    account may not be able to start our Python."""
    account = pwd.getpwnam(NAME)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            os.setgroups([])
            os.setgid(account.pw_gid)
            os.setuid(account.pw_uid)
            said = {"found": probe()}
        except BaseException:  # nothing may come back from here
            said = {"error": traceback.format_exc()}
        with os.fdopen(writing, "w") as pipe:
            json.dump(said, pipe)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        said = json.load(pipe)
    os.waitpid(child, 0)
    assert "error" not in said, said["error"]
    return said["found"]


def tried(paths: Sequence[Path], pids: Sequence[int]) -> Found:
    """What could be listed, read, written, connected to and signalled; to be called as the other
    account."""
    found: Found = {"listed": [], "read": [], "written": [], "connected": [], "signalled": []}
    for path in paths:
        with contextlib.suppress(OSError):
            os.listdir(path)
            found["listed"].append(str(path))
        with contextlib.suppress(OSError):
            (path / "left-by-another").touch()
            found["written"].append(str(path))
        _connect(path, found)
        for flags, kind in ((os.O_RDONLY, "read"), (os.O_WRONLY, "written")):
            with contextlib.suppress(OSError):
                fd = os.open(path, flags | os.O_NONBLOCK)
                if not stat.S_ISDIR(os.fstat(fd).st_mode):
                    found[kind].append(str(path))
                os.close(fd)
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, 0)
            found["signalled"].append(str(pid))
        for name in ("environ", "fd/1", "maps", "mem", "cwd"):
            with contextlib.suppress(OSError):
                path = Path(f"/proc/{pid}/{name}")
                os.stat(path) if name == "cwd" else os.close(os.open(path, os.O_RDONLY))
                found["read"].append(str(path))
    return found


def _connect(path: Path, found: Found) -> None:
    with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as ours:
        ours.settimeout(1.0)
        with contextlib.suppress(OSError):
            ours.connect(os.fspath(path))
            found["connected"].append(str(path))
