"""Where daemons of this machine have their homes, and which of them is meant."""

from __future__ import annotations

import os
from pathlib import Path

from elasticd.settings.localhomes import cluster_of, node_homes
from elasticd.settings.places import SOCKET_NAME, default_home

LOCAL = "local"


def user_home(given: Path | None) -> Path:
    """The home whose daemon is asked: ``given``, ELASTICD_HOME, or the platform's place.

    Where no daemon lives in the platform's place but a local cluster does, that cluster is meant.
    """
    if given is not None:
        return given.absolute()
    home = default_home().absolute()
    if "ELASTICD_HOME" not in os.environ and not _may_exist(home / SOCKET_NAME):
        local = home / LOCAL
        if _nodes(local):
            return local
    return home


def local_home(given: Path | None) -> Path:
    """The home of a local cluster: as given, or ``local`` in the platform's place."""
    if given is not None or os.environ.get("ELASTICD_HOME"):
        return (given or default_home()).absolute()
    return default_home().absolute() / LOCAL


def home_option(home: Path) -> tuple[str, ...]:
    """The words that name ``home`` behind a command; none where the command means it anyway."""
    named = cluster_of(home)
    return () if named in (user_home(None), local_home(None)) else ("--home", str(named))


def home_behind_sudo(home: Path) -> tuple[str, ...]:
    """As :func:`home_option`, for what may be said with sudo, which drops ELASTICD_HOME."""
    if option := home_option(home):
        return option
    return ("--home", str(home)) if os.environ.get("ELASTICD_HOME") else ()


def sockets(home: Path) -> list[Path]:
    """The control sockets under ``home``: its own, then those of its nodes. One that we may not
    look for counts, so that whoever connects to it hears that."""
    folders = [home, *_nodes(home)]
    return [path for folder in folders if _may_exist(path := folder / SOCKET_NAME)]


def _nodes(home: Path) -> list[Path]:
    try:
        return node_homes(home)
    except PermissionError:
        return []


def _may_exist(path: Path) -> bool:
    try:
        return path.exists()
    except PermissionError:
        return True
