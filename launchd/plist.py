"""The property list that makes launchd run the daemon (launchd.plist(5)). Pure: bytes in memory.

Each key has its reason beside it. What is left out on purpose: ``NumberOfFiles`` in the resource
limits, which changes the limit of the whole system (the daemon raises its own with setrlimit).
"""

from __future__ import annotations

import contextlib
import os
import plistlib
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.parsers.expat import ExpatError

from elasticd.supervision.service import daemon_command

LABEL = "com.elasticd.daemon"
STOP_SECONDS = 90
THROTTLE_SECONDS = 10
INCURABLE_ENDS_WELL = "ELASTICD_INCURABLE_ENDS_WELL"
"""In the daemon's environment: its exit code is 0 where no restart cures why it ends."""


def lasting(python: str) -> str:
    """The interpreter's path that an upgrade leaves valid: Homebrew has each version in a folder of
    its own in Cellar, which goes with it, and a link in opt to the newest."""
    parts = Path(python).parts
    if "Cellar" not in parts[:-3]:
        return python
    at = parts.index("Cellar")
    linked = Path(*parts[:at], "opt", parts[at + 1], *parts[at + 3 :])
    with contextlib.suppress(OSError):
        if os.path.samefile(linked, python):
            return str(linked)
    return python


def home_in(data: bytes) -> Path | None:
    """Of which home a property list of ours is; None: it names none, or is broken."""
    try:
        command = plistlib.loads(data)["ProgramArguments"]
        return Path(command[command.index("--home") + 1])
    except (ValueError, LookupError, AttributeError, TypeError, ExpatError):
        return None


@dataclass(frozen=True, slots=True)
class DaemonPlist:
    """What the property list says.

    Attributes:
        home: the daemon's state folder, absolute; its log is :attr:`log`.
        user: the account that the daemon and its ranks run as; None: an agent, which launchd runs
            as whoever is logged in.
        user_home: that account's home folder.
        path: PATH of the daemon and its ranks.
        python: absolute path of the interpreter that has elasticd.
        lang: LANG of the daemon and its ranks.
        aside: its log, if the home is on another disk (:mod:`elasticd.launchd.otherdisk`).
    """

    home: Path
    user: str | None
    user_home: Path
    path: str
    python: str = sys.executable
    lang: str = "en_US.UTF-8"
    aside: Path | None = None

    @property
    def log(self) -> Path:
        return self.aside or self.home / "daemon.log"

    def values(self) -> dict[str, Any]:
        """The property list as plistlib takes it."""
        log = str(self.log)
        command = daemon_command(self.python, self.home)
        return {
            "Label": LABEL,
            # A LaunchDaemon by default, not an agent: Local Network privacy exempts daemons, while
            # it denies agents that run Python silently (EHOSTUNREACH). Metal works with nobody
            # logged in. Hence a user must be named; otherwise the user's script would run as root.
            **({"UserName": self.user} if self.user is not None else {}),
            # launchd knows no shell and no PATH for the program itself.
            "ProgramArguments": command,
            # The daemon goes to its home itself.
            "WorkingDirectory": "/" if self.aside else str(self.home),
            "RunAtLoad": True,
            # A crash brings it back, a deliberate stop (status 0) doesn't.
            "KeepAlive": {"SuccessfulExit": False},
            # The least pause between two starts; below 10 launchd warns and takes 10.
            "ThrottleInterval": THROTTLE_SECONDS,
            # From SIGTERM to SIGKILL: an orderly stop writes a last checkpoint.
            "ExitTimeOut": STOP_SECONDS,
            # launchd makes the log: nobody else may read it. The daemon sees to it, too.
            "Umask": 0o077,
            # Trainer and reducer outlive a crashed daemon for their grace period.
            "AbandonProcessGroup": True,
            # The default throttles CPU and I/O, and Background the GPU several times over.
            "ProcessType": "Interactive",
            # launchd sets none of these, and MLX, Python and the user's script want them.
            "EnvironmentVariables": {
                "HOME": str(self.user_home),
                "LANG": self.lang,
                "PATH": self.path,
                # launchd can't tell exit codes apart: what no restart cures must end with 0.
                INCURABLE_ENDS_WELL: "1",
            },
            "StandardOutPath": log,
            "StandardErrorPath": log,
        }

    def data(self) -> bytes:
        """The file's content: XML, keys sorted, so that equal settings give equal bytes."""
        return plistlib.dumps(self.values(), fmt=plistlib.FMT_XML, sort_keys=True)
