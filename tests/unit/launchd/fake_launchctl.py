"""launchd as launchctl(1) shows it, for one service."""

from __future__ import annotations

import plistlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from elasticd.launchd.plist import LABEL
from elasticd.supervision.service import Result


@dataclass
class FakeLaunchctl:
    """launchctl of macOS 14 to 26 and its launchd, for one service: statuses, messages, slow
    unloading.

    Attributes:
        unload_calls: how many calls a ``bootout`` goes on in the background.
        leaving_says: what ``bootstrap`` answers meanwhile.
        afterwards: how many calls ``bootstrap`` answers 5 behind that.
        loaded_says: what it answers of a service that is loaded.
        speculative: it starts nothing; ``kickstart`` does.
        refuses: how many calls ``kickstart`` answers ``refuses_with``, and does nothing.
        stubborn: how many calls the daemon takes to end; ``kickstart -k`` kills it at once.
        absent_says: what ``bootstrap`` answers where nobody is logged in.
        domain: where the service is to be; ``gui/501`` is there while 501 is logged in.
    """

    unload_calls: int = 0
    leaving_says: int = 37
    afterwards: int = 0
    loaded_says: int = 5
    speculative: bool = False
    refuses: int = 0
    refuses_with: int = 5
    stubborn: int = 0
    killed: int = 0
    last_pid: int = 4099
    domain: str = "system"
    logged_in: bool = True
    absent_says: int = 125
    calls: list[tuple[str, ...]] = field(default_factory=list)
    enabled: bool = True
    loaded: Path | None = None
    pid: int = 0
    exit_code: str = "(never exited)"
    leaving: int = 0
    ending: int = 0

    @property
    def target(self) -> str:
        return f"{self.domain}/{LABEL}"

    @property
    def described(self) -> str:
        kind, _, uid = self.domain.partition("/")
        return f"for user {kind}: {uid}" if uid else f"for {kind}"

    def log_out(self) -> None:
        """The domain ends, and what is in it."""
        self.logged_in, self.loaded, self.pid = False, None, 0

    def run(self, *arguments: str) -> Result:
        self.calls.append(arguments)
        if self.leaving:
            self.leaving -= 1
            if not self.leaving:
                self.loaded = None
        if self.ending:
            self.ending -= 1
            self.pid = self.pid if self.ending else 0
        verb, *rest = arguments
        verbs: dict[str, Callable[..., Result]] = {
            "enable": self._enable,
            "bootstrap": self._bootstrap,
            "bootout": self._bootout,
            "kickstart": self._kickstart,
            "kill": self._kill,
            "print": self._print,
        }
        return verbs[verb](*rest)

    def _enable(self, target: str) -> Result:
        assert target == self.target
        self.enabled = True
        return Result(0, "")

    def _bootstrap(self, domain: str, path: str) -> Result:
        assert domain == self.domain
        if not self.logged_in:
            return Result(self.absent_says, f"Bootstrap failed: {self.absent_says}: Error")
        said = {5: "Input/output error", 37: "Operation already in progress"}
        if self.leaving or (self.loaded is not None):
            status = self.leaving_says if self.leaving else self.loaded_says
            return Result(status, f"Bootstrap failed: {status}: {said[status]}")
        self.afterwards -= bool(self.afterwards)
        if self.afterwards or not self.enabled or not _acceptable(Path(path)):
            return Result(5, f"Bootstrap failed: 5: {said[5]}")
        self.loaded = Path(path)
        if plistlib.loads(self.loaded.read_bytes())["RunAtLoad"] and not self.speculative:
            self._spawn()
        return Result(0, "")

    def _spawn(self) -> None:
        self.last_pid += 1
        self.pid = self.last_pid

    def _kill(self, signal: str, target: str) -> Result:
        assert (signal, target) == ("SIGTERM", self.target)
        if self.loaded is None or not self.pid:
            return Result(3, "Could not signal service: 3: No such process")
        self.ending = self.stubborn
        self.pid = self.pid if self.stubborn else 0
        return Result(0, "")

    def _bootout(self, target: str) -> Result:
        assert target == self.target
        if not self.logged_in:
            return self._no_domain()
        if self.loaded is None:
            return Result(3, "Boot-out failed: 3: No such process")
        self.pid = 0
        if self.unload_calls:
            self.leaving = self.unload_calls
            return Result(36, "Boot-out failed: 36: Operation now in progress")
        self.loaded = None
        return Result(0, "")

    def _no_domain(self) -> Result:
        return Result(112, f"Bad request.\nCould not find domain {self.described}")

    def _no_service(self) -> Result:
        said = f'Could not find service "{LABEL}" in domain {self.described}'
        return Result(113, f"Bad request.\n{said}")

    def _kickstart(self, *arguments: str) -> Result:
        assert arguments[-1] == self.target
        if not self.logged_in:
            return self._no_domain()
        if self.loaded is None:
            return self._no_service()
        if self.refuses:
            self.refuses -= 1
            return Result(self.refuses_with, f"Could not kickstart service: {self.refuses_with}")
        if self.pid and "-k" not in arguments:
            return Result(37, "")
        self.killed += bool(self.pid)
        self._spawn()
        return Result(0, "")

    def _print(self, target: str) -> Result:
        assert target in (self.target, self.domain)
        if not self.logged_in:
            return self._no_domain()
        if target == self.domain:
            return Result(0, f"{target} = {{\n}}")
        if self.loaded is None:
            return self._no_service()
        lines = [
            f"{self.target} = {{",
            f"\tpath = {self.loaded}",
            f"\tstate = {self._named_state()}",
            "\tevent triggers = {",
            "\t\tstate = 7",
            "\t}",
            *([f"\tpid = {self.pid}"] if self.pid else []),
            f"\tlast exit code = {self.exit_code}",
            "}",
        ]
        return Result(0, "\n".join(lines))

    def _named_state(self) -> str:
        if self.leaving:
            return "SIGTERMed"
        return "running" if self.pid else "not running"


def _acceptable(path: Path) -> bool:
    return path.exists() and path.suffix == ".plist" and path.stat().st_mode & 0o022 == 0
