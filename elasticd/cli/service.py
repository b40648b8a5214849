"""The daemon as a service of the operating system: launchd on macOS, systemd elsewhere."""

from __future__ import annotations

import os
import pwd
import sys
from pathlib import Path
from typing import Protocol

from elasticd.config import default_home
from elasticd.errors import UsageError
from elasticd.launchd.service import LaunchdService
from elasticd.supervision.service import ServiceStatus, SystemdService, invoking_user


class Service(Protocol):
    """What both service managers offer; see there."""

    def install(self, dry_run: bool = False) -> str: ...
    def uninstall(self, dry_run: bool = False) -> str: ...
    def start(self, dry_run: bool = False) -> str: ...
    def stop(self, dry_run: bool = False) -> str: ...
    def status(self) -> ServiceStatus: ...


def service(home: Path | None, user: str | None, platform: str = sys.platform) -> Service:
    """The service of one home on this machine.

    Args:
        home: the daemon's state folder; None: the default of the account that it runs as.
        user: that account; None: whoever called, also through sudo.

    Raises:
        UsageError: there is no such user.
    """
    account = user or invoking_user()
    folder = home or _home_of(account)
    if platform == "darwin":
        return LaunchdService.for_this_machine(folder, user=account)
    # Without root, systemd can still run it as a service of the caller's own.
    own = user is None and os.geteuid() != 0
    return SystemdService.for_this_machine(folder, user=None if own else account)


def _home_of(account: str) -> Path:
    try:
        record = pwd.getpwnam(account)
    except KeyError:
        raise UsageError(f"there is no user {account!r} on this machine") from None
    environment = dict(os.environ)
    if record.pw_uid != os.geteuid():
        environment.pop("XDG_STATE_HOME", None)
        environment["HOME"] = record.pw_dir
    return default_home(environment)
