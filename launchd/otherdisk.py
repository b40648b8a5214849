"""A home on another disk than macOS's own: launchd opens the log of a service, and goes to its
folder, before it starts anything, and is refused there (``last exit code = 78: EX_CONFIG``), or
makes both in the place of a disk that is not mounted yet: that is mounted under another name then,
and who has his account's folder there can't log in. So both are on macOS's own disk. The daemon
itself waits for its disk: it ends with 1, and is started again, until that is mounted.
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
OWN_DISK = Path("/Library")
"""On the disk that a Mac has when launchd starts services."""
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


def is_apart(
    path: Path, device: Callable[[Path], int] = device_of, own_disk: Path = OWN_DISK
) -> bool:
    """Whether it is on another disk than macOS's own, mounted or not."""
    try:
        if below(path.resolve(), VOLUMES) is not None:
            return True
        return own_disk.is_dir() and device(path) != device(own_disk)
    except OSError:
        return False


def logs_aside(user_home: Path, uid: int) -> tuple[Path, Path]:
    """Where the log of a service may be of which the home is on another disk: below its account's
    own folder, or below the system's, if the account's is on another disk, too."""
    # One folder, so that nothing above it is given to the account.
    return user_home / LOG, OWN_DISK / f"Logs/elasticd-{uid}" / Path(LOG).name


def log_aside(
    home: Path, user_home: Path, uid: int, apart: Callable[[Path], bool] = is_apart
) -> Path | None:
    """Which of both it is; None: it is in the home."""
    own, system = logs_aside(user_home, uid)
    if not apart(home):
        return None
    return system if apart(user_home) else own


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
