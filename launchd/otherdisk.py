"""A home on another disk than its account's: launchd opens the log of a service, and goes to its
folder, before it starts anything, and is refused there (``last exit code = 78: EX_CONFIG``). So
both are on the account's own disk then. The daemon itself waits for its disk: it ends with 1, and
is started again, until that is mounted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from elasticd.errors import OperationError
from elasticd.launchd.protected import VOLUMES, below

LOG = "Library/Logs/elasticd/daemon.log"
"""Of an account's home folder; a Mac has one service of elasticd."""
MOUNTED_LATE = (
    "macOS mounts an external disk only while somebody is logged in at the screen, unless you say"
    " 'sudo defaults write /Library/Preferences/SystemConfiguration/autodiskmount"
    " AutomountDisksWithoutUserLogin -bool true'; an encrypted one needs its password, too"
)
"""By Apple's own source, diskarbitrationd: after a power cut at night it is away until a log-in,
and after the last log-out it goes again if nobody has a file open there."""


def device_of(path: Path) -> int:
    """The disk on which it is, or would be."""
    real = path.resolve()
    there = next(each for each in (real, *real.parents) if each.exists())
    return there.stat().st_dev


def is_apart(home: Path, user_home: Path, device: Callable[[Path], int] = device_of) -> bool:
    """Whether a home is on another disk than its account's home folder, mounted or not."""
    try:
        apart = below(home.resolve(), VOLUMES) is not None
        return apart or device(home) != device(user_home)
    except OSError:
        return False


def require_mounted(
    home: Path, system: str = sys.platform, is_mount: Callable[[Path], bool] = os.path.ismount
) -> None:
    """A disk that isn't mounted has an empty folder for its place, or none: a home that was made
    there would be a new one.

    Raises:
        OperationError: the home is on such a disk.
    """
    real = home.resolve()
    if system != "darwin" or (names := below(real, VOLUMES)) is None:
        return
    on_it = [real, *real.parents][: len(names)]
    if not any(map(is_mount, on_it)):
        raise OperationError(
            f"{home} is on a disk that is not mounted ({on_it[-1] if on_it else VOLUMES}):"
            f" connect it. {MOUNTED_LATE}. A service is started again every few seconds until then"
        )


def mounted_late(path: Path, system: str = sys.platform) -> str:
    """Why what should be there may be away, as a cure; empty: it is on no other disk of a Mac."""
    real = Path(os.path.realpath(path))  # of a link to itself, too
    return MOUNTED_LATE if system == "darwin" and below(real, VOLUMES) is not None else ""
