"""The daemon as a service of the operating system: launchd on macOS, systemd elsewhere."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import cast

VERBS = ("install", "uninstall", "start", "stop", "status")


def act(verb: str, home: Path, *, dry_run: bool, platform: str = sys.platform) -> str:
    """Do one of :data:`VERBS`; returns what to show.

    Raises:
        OperationError: the operating system refuses.
    """
    name = "elasticd.launchd" if platform == "darwin" else "elasticd.supervision.service"
    manager = importlib.import_module(name)
    return cast(Callable[[Path, bool], str], getattr(manager, verb))(home, dry_run)
