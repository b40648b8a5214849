"""The homes of a local cluster's daemons: HOME holds ``node-0/ node-1/ …``, one each."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

from elasticd.errors import UsageError
from elasticd.pasting import of_home, quoted
from elasticd.settings.places import LOCAL_LOCK_NAME

MAX_LOCAL_NODES = 64


def node_homes(home: Path) -> list[Path]:
    """The homes of a local cluster's daemons, by number.

    Raises:
        PermissionError: we may not look there.
    """
    found: list[Path] = []
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        found.extend(
            folder
            for folder in home.iterdir()
            if re.fullmatch(r"node-(0|[1-9]\d{0,3})", folder.name) and folder.is_dir()
        )
    return sorted(found, key=_number)


def _number(home: Path) -> int:
    return int(home.name.removeprefix("node-"))


def count_at(home: Path) -> int:
    """How many nodes there were, from node-0 on: one whose folder is gone counts, unless it was the
    last one.

    Raises:
        UsageError: there can't be so many.
        PermissionError: we may not look there.
    """
    last = max(map(_number, node_homes(home)), default=-1)
    if last >= MAX_LOCAL_NODES:
        raise UsageError(
            f"{home} has node-{last}, and there are {MAX_LOCAL_NODES} nodes at most, from node-0"
            " on; move that folder away, or use another --home"
        )
    return last + 1


def homes_at(home: Path) -> list[Path]:
    """The homes of daemons there: of one node, or of all of a local cluster.

    Raises:
        UsageError: there is no such folder.
        PermissionError: we may not look there.
    """
    if not home.is_dir():
        raise UsageError(f"{home}: there is no such folder")
    return node_homes(home) or [home]


def cluster_of(home: Path) -> Path:
    """The home to name for what starts the daemon of ``home``: that of its local cluster if it is a
    node of one. A home that is only called so is none's: 'local up' would write into it."""
    named = home.parent
    return named if is_cluster(named) and home in node_homes(named) else home


def is_cluster(home: Path) -> bool:
    """Whether 'local up' has made it; no where we may not look."""
    with contextlib.suppress(PermissionError):
        return (home / LOCAL_LOCK_NAME).exists()
    return False


def is_local(home: Path) -> bool:
    """Whether it is the home of a local cluster's node."""
    return cluster_of(home) != home


def begun_anew(home: Path, up: str = "local up") -> str:
    """The commands by which a local cluster's node gets settings and certificates that fit; ``up``:
    the second, where it has options."""
    named = cluster_of(home)
    down, up = (quoted(of_home(do, named)) for do in ("local down", up))
    return f"{down}, then {up}"
