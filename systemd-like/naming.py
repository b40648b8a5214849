"""How a file in a home names a process: by its pid, by when it was born, and by that home.

A home may be copied while its daemon runs. The copy's files name the same processes, and it may
neither command nor end them. So the folder is named too, by its device and inode: it keeps both
where it is moved on its disk, and no copy has them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from elasticd.supervision.birth import birth


def named(process: psutil.Process, home: Path) -> dict[str, Any]:
    """What a file in ``home`` has to say of a process.

    Raises:
        psutil.Error: there is none, or it can't be looked at.
        OSError: there is no such folder.
    """
    pid = process.pid
    return {"pid": pid, "create_time": process.create_time(), "born": birth(pid), **of_home(home)}


def of_home(home: Path) -> dict[str, Any]:
    """By which a file tells in which home it was written. Raises OSError."""
    found = home.stat()
    return {"home": [found.st_dev, found.st_ino]}


def is_copied(said: Mapping[str, Any], home: Path) -> bool:
    """Whether that was written in another home than ``home``, where it was read: it names none of
    its processes. Earlier versions named no home, which counts as this one. Raises OSError."""
    return "home" in said and said["home"] != of_home(home)["home"]
