"""Folders that macOS keeps from services: what lies there a daemon can't read.

A process outside of a terminal or an app gets EPERM in Documents, Desktop and Downloads of a
person's home, as nobody is there to be asked. launchd would start the daemon again for ever. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from elasticd.errors import UsageError

PROTECTED = ("Documents", "Desktop", "Downloads")


def require_open(user_home: Path, places: Iterable[tuple[str, Path]]) -> None:
    """``places``: what each is, and where.

    Raises:
        UsageError: one of them lies where a service may not look.
    """
    for what, path in places:
        for each in dict.fromkeys((path.absolute(), path.resolve())):
            for name in PROTECTED:
                if each.is_relative_to(user_home / name):
                    raise UsageError(
                        f"{what} {path} lies in {name}, where macOS lets no service read:"
                        f" move it, to {user_home / 'elasticd'} say"
                    )
