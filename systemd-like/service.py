"""The daemon as a systemd service: its unit file, and the systemctl calls.

Two kinds: a system service (root installs it, it runs as a chosen user) and a user service.
"""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from elasticd import systemtools
from elasticd.errors import OperationError, UsageError
from elasticd.pasting import pasted
from elasticd.supervision.givenhome import make_home

UNIT_NAME = "elasticd.service"
SYSTEM_FOLDER = Path("/etc/systemd/system")
_FOLDER = "WorkingDirectory="
"""systemd also waits for the disk of it, as by RequiresMountsFor= (systemd.exec(5))."""
_OF_THE_SYSTEM = (("usr",), ("etc",), ("boot",), ("efi",))
"""What ProtectSystem=full keeps from being written."""
STOP_SECONDS = 90
NOTHING_TO_DO = "{} is as it would be written, and the service of {} runs: nothing to do"
STARTED = "wrote {}; the service is enabled and started. Its home is {}"
"""sudo drops ELASTICD_HOME, so it may be another one than was meant."""
CALL_SECONDS = 120.0
"""Longest wait for one systemctl; a stop takes up to :data:`STOP_SECONDS`."""


@dataclass(frozen=True, slots=True)
class Result:
    """How a command ended: exit status, and its output and errors as text."""

    status: int
    text: str


@dataclass(frozen=True, slots=True)
class ServiceStatus:
    """What the service manager knows; ``text`` is one line for people."""

    installed: bool
    running: bool
    pid: int | None
    text: str


class Systemctl(Protocol):
    """The port to systemd."""

    def run(self, *arguments: str) -> Result:
        """``systemctl ARGUMENTS``; an unsuccessful end is a status, not an exception."""
        ...


def run_command(command: Sequence[str], timeout_seconds: float) -> Result:
    """Run a service manager's tool.

    Raises:
        OperationError: there is no such program here, or it did not end in time.
    """
    try:
        return Result(*systemtools.run(command, timeout_seconds, subprocess.STDOUT))
    except FileNotFoundError:
        raise OperationError(f"{command[0]}: there is no such program here") from None
    except subprocess.TimeoutExpired:
        raise OperationError(f"{command[0]} did not end within {timeout_seconds:g} s") from None


@dataclass(frozen=True, slots=True)
class SystemSystemctl:
    """The real systemctl; ``user`` talks to the user's own manager."""

    user: bool

    def run(self, *arguments: str) -> Result:
        scope = ["--user"] if self.user else []
        return run_command(["systemctl", *scope, "--no-pager", *arguments], CALL_SECONDS)


@dataclass(frozen=True, slots=True)
class UnitFile:
    """What the unit file says.

    Attributes:
        home: the daemon's state folder, absolute.
        user: the account of a system service; None: a user service.
        python: absolute path of the interpreter that has elasticd.
        environment: PATH, HOME and LANG of the daemon and so of the ranks.
    """

    home: Path
    user: str | None
    python: str = sys.executable
    environment: tuple[tuple[str, str], ...] = ()

    def text(self) -> str:
        """The file. Reasons stand in it as comments: it is read on machines without the source."""
        command = daemon_command(self.python, self.home)
        account = [f"User={self.user}"] if self.user else []
        lines = [
            "[Unit]",
            "Description=elasticd: fault-tolerant elastic training with MLX",
            "After=network-online.target",
            "Wants=network-online.target",
            "# However often it crashed, a node is to come back.",
            "StartLimitIntervalSec=0",
            "",
            "[Service]",
            "Type=notify",
            "NotifyAccess=main",
            f"ExecStart={' '.join(quote(word, command=True) for word in command)}",
            f"{_FOLDER}{str(self.home).replace('%', '%%')}",
            *account,
            *(f"Environment={quote(f'{name}={value}')}" for name, value in self.environment),
            "Restart=on-failure",
            "# The others wait two seconds for it before they go on without its rank.",
            "RestartSec=0.2",
            "# 2 is a wrong setting and 4 a damaged journal, which no restart cures.",
            "RestartPreventExitStatus=2 4",
            "# Trainer and reducer outlive a crashed daemon for their grace period.",
            "KillMode=process",
            "# A rank killed for memory is a fault to recover from, not the end of the service.",
            "OOMPolicy=continue",
            "WatchdogSec=30",
            f"TimeoutStopSec={STOP_SECONDS}",
            "TimeoutStartSec=90",
            "LimitNOFILE=65536",
            "# Neither the daemon nor a script needs more rights than its account has.",
            "NoNewPrivileges=yes",
            "LockPersonality=yes",
            *self._closed(),
            "",
            "[Install]",
            f"WantedBy={'multi-user.target' if self.user else 'default.target'}",
            "",
        ]
        return "\n".join(lines)

    def _closed(self) -> list[str]:
        """What the system manager alone can close. Devices stay open: MLX may need the GPU's."""
        if self.user is None:
            return []
        closed = ["ProtectHostname=yes", "ProtectKernelLogs=yes"]
        # A home that lies in a part of the system has to be written.
        within = self.home.parts[1:2] in _OF_THE_SYSTEM
        return closed if within else [*closed, "ProtectSystem=full"]


def quote(word: str, *, command: bool = False) -> str:
    """A word as systemd reads it back (systemd.syntax(7), systemd.service(5) "Command lines").

    Raises:
        UsageError: a line break or zero byte, which no unit file can carry.
    """
    if any(ord(character) < 32 for character in word):
        raise UsageError(f"{word!r}: a service file can't carry control characters")
    word = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{word.replace("$", "$$") if command else word}"'


def daemon_command(python: str, home: Path) -> list[str]:
    """What a service manager starts."""
    return [python, "-P", "-m", "elasticd.shell.daemon", "run", "--home", str(home)]


def invoking_user() -> str:
    """The account that called, also through sudo: the one that a system service is to run as."""
    sudo = os.environ.get("SUDO_USER", "")
    return sudo if sudo and os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name


def user_unit_folder() -> Path:
    """Where systemd looks for the user's own units."""
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "systemd" / "user"


@dataclass(frozen=True, slots=True)
class SystemdService:
    """The service of one home. Every method returns what it did, or with ``dry_run`` would do.

    Raises (every method): OperationError: systemctl said no, or a file can't be written.
    """

    unit: UnitFile
    systemctl: Systemctl
    folder: Path = field(default=SYSTEM_FOLDER)

    @classmethod
    def for_this_machine(cls, home: Path, *, user: str | None) -> SystemdService:
        """A system service that runs as ``user``, or with None the caller's own user service."""
        names = ("HOME", "PATH", "LANG")
        environment = {name: os.environ[name] for name in names if name in os.environ}
        if user is not None:
            environment.pop("HOME", None)  # systemd sets that of the account
        pairs = tuple(sorted(environment.items()))
        unit = UnitFile(home.absolute(), user, environment=pairs)
        folder = SYSTEM_FOLDER if user is not None else user_unit_folder()
        return cls(unit, SystemSystemctl(user=user is None), folder)

    @property
    def home(self) -> Path:
        """Of its daemon."""
        return self.unit.home

    @property
    def path(self) -> Path:
        return self.folder / UNIT_NAME

    def installed_home(self) -> Path | None:
        """Of which home the service is that is installed; None: of none, or nobody can say."""
        try:
            lines = self.path.read_text().splitlines()
        except (OSError, ValueError):
            return None
        found = [line.removeprefix(_FOLDER) for line in lines if line.startswith(_FOLDER)]
        return Path(found[0].replace("%%", "%")) if found else None

    def install(self, dry_run: bool = False) -> str:
        """Write the unit file, enable the service at boot, and start it. Nothing if that is there
        already, and runs."""
        calls = (("daemon-reload",), ("enable", UNIT_NAME), ("restart", UNIT_NAME))
        text = self.unit.text()
        if dry_run:
            return f"# would write {self.path}\n{text}{_would_run(calls)}"
        if self.installed() == text.encode() and self.status().running:
            self._call("enable", UNIT_NAME)
            return NOTHING_TO_DO.format(self.path, self.home)
        self._write(text.encode())
        for call in calls:
            self._call(*call)
        return STARTED.format(self.path, self.home)

    def _write(self, data: bytes) -> None:
        try:
            make_home(self.unit.home, self.unit.user)
            self.folder.mkdir(parents=True, exist_ok=True)
            beside = self.path.with_name(UNIT_NAME + ".partial")
            beside.write_bytes(data)
            beside.chmod(0o644)
            beside.replace(self.path)
        except OSError as error:
            raise OperationError(f"{self.path}: {error.strerror}") from error

    def installed(self) -> bytes | None:
        """The file that is installed; None: none is, or it can't be read."""
        try:
            return self.path.read_bytes()
        except OSError:
            return None

    def put_back(self, before: bytes | None) -> str:
        """Undo an :meth:`install`: ``before`` is what was installed then, if anything was."""
        if before is None:
            self.uninstall()
            return f"{self.path} was removed again"
        self._write(before)
        for call in (("daemon-reload",), ("restart", UNIT_NAME)):
            self._call(*call)
        return f"the service of before is back in {self.path}, and started"

    def uninstall(self, dry_run: bool = False) -> str:
        """Stop and disable the service and remove its file; the home stays as it is."""
        calls = (("disable", "--now", UNIT_NAME),)
        if dry_run:
            return f"# would remove {self.path}\n{_would_run((*calls, ('daemon-reload',)))}"
        if not self.path.exists():
            return f"{self.path} is not there: nothing to do"
        for call in calls:
            self._call(*call)
        try:
            self.path.unlink(missing_ok=True)
        except OSError as error:
            raise OperationError(f"{self.path}: {error.strerror}") from error
        self._call("daemon-reload")
        return f"removed {self.path}"

    def start(self, dry_run: bool = False) -> str:
        """Start it; does nothing if it runs."""
        return self._verb("start", "started", dry_run)

    def restart(self, dry_run: bool = False) -> str:
        """End it, and start it again."""
        return self._verb("restart", "restarted", dry_run)

    def stop(self, dry_run: bool = False) -> str:
        """Stop it until the next boot or :meth:`start`."""
        return self._verb("stop", "stopped", dry_run)

    def _verb(self, verb: str, done: str, dry_run: bool) -> str:
        if dry_run:
            return _would_run(((verb, UNIT_NAME),))
        self._call(verb, UNIT_NAME)
        return f"the service is {done}"

    def status(self) -> ServiceStatus:
        """What systemd knows of it."""
        names = ("LoadState", "ActiveState", "SubState", "MainPID", "Result")
        text = self._call("show", UNIT_NAME, f"--property={','.join(names)}")
        found = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
        pid = found.get("MainPID", "0")
        running = found.get("ActiveState") == "active"
        line = "{ActiveState} ({SubState}), last result: {Result}".format_map(
            {name: found.get(name, "unknown") for name in names}
        )
        installed = found.get("LoadState") == "loaded"
        return ServiceStatus(
            installed=installed,
            running=running,
            pid=int(pid) if pid.isdecimal() and pid != "0" else None,
            text=line if installed else "not installed",
        )

    def log_command(self, follow: bool = False) -> list[str]:
        """The command that prints what the daemon logged, and with ``follow`` goes on."""
        unit = "--unit" if self.unit.user is not None else "--user-unit"
        options = ["--output=cat", "--no-pager", "--lines=all"]
        return ["journalctl", unit, UNIT_NAME, *options, *(["--follow"] if follow else [])]

    def _call(self, *arguments: str) -> str:
        result = self.systemctl.run(*arguments)
        if result.status:
            raise OperationError(
                f"systemctl {' '.join(arguments)}: {result.text or f'status {result.status}'}"
            )
        return result.text


def _would_run(calls: Sequence[Sequence[str]]) -> str:
    return "".join(f"# would run: {pasted('systemctl', *call)}\n" for call in calls)
