"""The daemon as a launchd service: its file in /Library/LaunchDaemons, and the launchctl calls.

The verbs are those of launchctl 2 (``bootstrap``, ``enable``, ``kickstart``, ``bootout``); the file
is one that plain ``launchctl load`` accepts too: owned by root:wheel, mode 0644.

Exit statuses that launchctl gives, as the field knows them: 3 and 113, no such service; 5, what
``bootstrap`` says of a service that is already loaded (and of a file that it doesn't like); 36 and
37, the operation is still in progress, usual right after a ``bootout``.
"""

from __future__ import annotations

import os
import plistlib
import pwd
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol
from xml.parsers.expat import ExpatError

from elasticd.errors import OperationError, UsageError
from elasticd.launchd.plist import LABEL, STOP_SECONDS, DaemonPlist
from elasticd.launchd.protected import require_open
from elasticd.supervision.service import (
    NOTHING_TO_DO,
    Result,
    ServiceStatus,
    make_home,
    run_command,
)

DAEMON_FOLDER = Path("/Library/LaunchDaemons")
DOMAIN = "system"
TARGET = f"{DOMAIN}/{LABEL}"
NO_SUCH_SERVICE = (3, 113)
ALREADY_LOADED = 5
IN_PROGRESS = (36, 37)
STATUS_LINE = re.compile(r"^\t(state|pid|last exit code) = (.+)$", re.MULTILINE)
"""One tab: nested sections of what ``print`` says have keys of the same names further in."""
MAX_TRIES = 60
TRY_SECONDS = 0.5
"""``bootout`` returns before the service has ended: at most 30 s of asking again."""


class Launchctl(Protocol):
    """The port to launchd."""

    def run(self, *arguments: str) -> Result:
        """``launchctl ARGUMENTS``; an unsuccessful end is a status, not an exception."""
        ...


@dataclass(frozen=True, slots=True)
class SystemLaunchctl:
    """The real launchctl."""

    def run(self, *arguments: str) -> Result:
        return run_command(["launchctl", *arguments], STOP_SECONDS + 30.0)


def give_to_root(path: Path) -> None:
    """Owner root:wheel and mode 0644: launchd refuses a file that others could write.

    Raises:
        OSError: the caller is not root.
    """
    os.chown(path, 0, 0)
    path.chmod(0o644)


@dataclass(frozen=True, slots=True)
class LaunchdService:
    """The service of one home. Every method returns what it did, or with ``dry_run`` would do.

    Raises (every method): OperationError: launchctl said no, or a file can't be written, which
    takes root.
    """

    plist: DaemonPlist
    launchctl: Launchctl = field(default_factory=SystemLaunchctl)
    folder: Path = DAEMON_FOLDER
    give: Callable[[Path], None] = give_to_root
    pause: Callable[[float], None] = time.sleep

    @classmethod
    def for_this_machine(cls, home: Path, *, user: str) -> LaunchdService:
        """A service that runs as ``user``.

        Raises:
            UsageError: there is no such user.
        """
        try:
            user_home = Path(pwd.getpwnam(user).pw_dir)
        except KeyError:
            raise UsageError(f"there is no user {user!r} on this machine") from None
        path = os.environ.get("PATH", "/usr/bin:/bin:/usr/sbin:/sbin")
        lang = os.environ.get("LANG", "en_US.UTF-8")
        folder = home.absolute()
        return cls(DaemonPlist(folder, user, user_home, path, lang=lang))

    @property
    def home(self) -> Path:
        """Of its daemon."""
        return self.plist.home

    @property
    def path(self) -> Path:
        return self.folder / f"{LABEL}.plist"

    def installed_home(self) -> Path | None:
        """Of which home the service is that is installed; None: of none, or nobody can say."""
        try:
            found = plistlib.loads(self.path.read_bytes()).get("WorkingDirectory")
        except (OSError, ValueError, AttributeError, ExpatError):
            return None
        return Path(found) if isinstance(found, str) else None

    def installed(self) -> bytes | None:
        """The file that is installed; None: none is, or it can't be read."""
        try:
            return self.path.read_bytes()
        except OSError:
            return None

    def put_back(self, before: bytes | None) -> str:
        """Undo an :meth:`install`: ``before`` is what was installed then, if anything was."""
        self._bootout()
        if before is None:
            self.path.unlink(missing_ok=True)
            return f"{self.path} was removed again"
        self._write(before)
        self._call("enable", TARGET)
        self._bootstrap()
        return f"the service of before is back in {self.path}, and started"

    def _places(self) -> tuple[tuple[str, Path], ...]:
        """What the daemon has to read from its first moment on."""
        package = Path(__file__).resolve().parent
        return (
            ("the home", self.plist.home),
            ("the interpreter", Path(self.plist.python)),
            ("elasticd in", package),
        )

    def install(self, dry_run: bool = False) -> str:
        """Write the file, enable the service at boot, and start it; replaces an older one. Nothing
        if that is there already, and runs.

        Raises:
            UsageError: it would lie where macOS lets no service read.
        """
        require_open(self.plist.user_home, self._places())
        calls = (("enable", TARGET), ("bootstrap", DOMAIN, str(self.path)))
        if dry_run:
            text = self.plist.data().decode()
            return f"# would write {self.path} (root:wheel, 0644)\n{text}{_would_run(calls)}"
        if self.installed() == self.plist.data() and self.status().running:
            return NOTHING_TO_DO.format(self.path)
        self._write(self.plist.data())
        self._bootout()
        self._call("enable", TARGET)
        self._bootstrap()
        return f"wrote {self.path}; the service is enabled and started"

    def _write(self, data: bytes) -> None:
        beside = self.path.with_name(self.path.name + ".partial")
        try:
            make_home(self.plist.home, self.plist.user)
            beside.write_bytes(data)
            self.give(beside)
            beside.replace(self.path)
        except OSError as error:
            beside.unlink(missing_ok=True)
            raise OperationError(f"{self.path}: {error.strerror} (needs root)") from error

    def uninstall(self, dry_run: bool = False) -> str:
        """Stop the service and remove its file; the home stays as it is."""
        if dry_run:
            return f"{_would_run((('bootout', TARGET),))}# would remove {self.path}\n"
        loaded = self._bootout()
        if not loaded and not self.path.exists():
            return f"{self.path} is not there: nothing to do"
        try:
            self.path.unlink(missing_ok=True)
        except OSError as error:
            raise OperationError(f"{self.path}: {error.strerror} (needs root)") from error
        return f"removed {self.path}"

    def start(self, dry_run: bool = False) -> str:
        """Start it; does nothing if it runs."""
        if dry_run:
            calls = (
                ("enable", TARGET),
                ("bootstrap", DOMAIN, str(self.path)),
                ("kickstart", TARGET),
            )
            return _would_run(calls)
        if not self.path.exists():
            raise OperationError(f"{self.path} is not there: install the service first")
        self._call("enable", TARGET)
        self._bootstrap()
        self._call("kickstart", TARGET)
        return "the service is started"

    def restart(self, dry_run: bool = False) -> str:
        """End it (SIGTERM, after :data:`STOP_SECONDS` SIGKILL) and start it again."""
        if dry_run:
            return _would_run((("kickstart", "-k", TARGET),))
        self._call("kickstart", "-k", TARGET)
        return "the service is restarted"

    def stop(self, dry_run: bool = False) -> str:
        """Stop it until the next boot or :meth:`start`."""
        if dry_run:
            return _would_run((("bootout", TARGET),))
        return "the service is stopped" if self._bootout() else "the service was not running"

    def status(self) -> ServiceStatus:
        """What launchd knows of it."""
        result = self.launchctl.run("print", TARGET)
        installed = self.path.exists()
        if result.status in NO_SUCH_SERVICE:
            text = "installed, not loaded" if installed else "not installed"
            return ServiceStatus(installed, running=False, pid=None, text=text)
        if result.status:
            raise OperationError(f"launchctl print {TARGET}: {_said(result)}")
        found = dict(STATUS_LINE.findall(result.text))
        pid, state = found.get("pid", ""), found.get("state", "unknown")
        text = f"{state}, last exit code: {found.get('last exit code', 'unknown')}"
        number = int(pid) if pid.isdecimal() else None
        return ServiceStatus(installed, running=state == "running", pid=number, text=text)

    def log_command(self, follow: bool = False) -> list[str]:
        """The command that prints what the daemon logged, and with ``follow`` goes on."""
        # -F: also when the file is made or replaced meanwhile.
        return ["tail", "-n", "+1", *(["-F"] if follow else []), str(self.plist.log)]

    def _bootstrap(self) -> None:
        """Load the file; a service that is loaded already is left as it is."""
        for _ in range(MAX_TRIES):
            result = self.launchctl.run("bootstrap", DOMAIN, str(self.path))
            if result.status == 0:
                return
            if result.status == ALREADY_LOADED and self._loaded():
                return
            if result.status not in IN_PROGRESS:
                break
            self.pause(TRY_SECONDS)
        raise OperationError(f"launchctl bootstrap {DOMAIN} {self.path}: {_said(result)}")

    def _bootout(self) -> bool:
        """Unload it and wait until it is gone. Whether it was loaded."""
        result = self.launchctl.run("bootout", TARGET)
        if result.status in NO_SUCH_SERVICE:
            return False
        if result.status and result.status not in IN_PROGRESS:
            raise OperationError(f"launchctl bootout {TARGET}: {_said(result)}")
        for _ in range(MAX_TRIES + int(STOP_SECONDS / TRY_SECONDS)):
            if not self._loaded():
                return True
            self.pause(TRY_SECONDS)
        raise OperationError(f"launchctl bootout {TARGET}: it has not ended")

    def _loaded(self) -> bool:
        return self.launchctl.run("print", TARGET).status == 0

    def _call(self, *arguments: str) -> None:
        result = self.launchctl.run(*arguments)
        if result.status:
            raise OperationError(f"launchctl {' '.join(arguments)}: {_said(result)}")


def _said(result: Result) -> str:
    return f"{result.text} (status {result.status})" if result.text else f"status {result.status}"


def _would_run(calls: Sequence[Sequence[str]]) -> str:
    return "".join(f"# would run: launchctl {' '.join(call)}\n" for call in calls)
