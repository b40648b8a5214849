"""Where a daemon's home is, and by what one is known."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

FILE_NAME = "elasticd.toml"
SOCKET_NAME = "control.sock"
DAEMON_FILE = "daemon.json"
LOCAL_LOCK_NAME = ".local.lock"
HOME_MARKS = (FILE_NAME, SOCKET_NAME, DAEMON_FILE, LOCAL_LOCK_NAME)
"""A folder that holds one of these is a daemon's home, or a local cluster's."""
PAPERS, OLD_PAPERS = "cluster", ".cluster.old"
MEMBER = "member.json"
"""In the papers: the node's id, among others."""


def papers_of(home: Path) -> Path:
    """Where is what makes a home's node a member: while that is replaced, or where that was cut
    short, the old ones."""
    folder, old = home / PAPERS, home / OLD_PAPERS
    return old if old.is_dir() and not folder.is_dir() else folder


def default_home(
    environment: Mapping[str, str] | None = None, platform: str = sys.platform
) -> Path:
    """The daemon's state folder: ELASTICD_HOME, else the platform's place for state."""
    given = os.environ if environment is None else environment
    if home := given.get("ELASTICD_HOME"):
        return Path(home)
    user = Path(given.get("HOME") or Path.home())
    if platform == "darwin":
        return user / "Library/Application Support/elasticd"
    # The base folder specification of freedesktop.org: relative values are to be ignored.
    state = Path(given.get("XDG_STATE_HOME", ""))
    return (state if state.is_absolute() else user / ".local/state") / "elasticd"
