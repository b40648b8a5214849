"""The port to launchd: launchctl, and how to read what it says.

Exit statuses that launchctl gives, as the field knows them: 3 and 113, no such service; 5, what
``bootstrap`` says of a service that is already loaded, of one that has just been taken away, and
of a file that it doesn't like; 36 and 37, the operation is still in progress, usual right after a
``bootout``; 37, what ``kickstart`` says of a service that runs, and sometimes ``bootstrap`` of one
that is loaded; 112 and 125, and of ``bootstrap`` sometimes 5, there is no such domain: that person
is not logged in at the screen.

A service that is being taken away is still listed, as SIGTERMed. On macOS 26 ``bootstrap`` may
leave a service that is to run at load for minutes without starting it, until ``kickstart`` does;
and ``kickstart`` may say 5 for a while there of a service that is loaded.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol

from elasticd.launchd.plist import STOP_SECONDS
from elasticd.supervision.service import Result, run_command

NO_SUCH_SERVICE = (3, 113)
NO_SUCH_DOMAIN = (112, 125)
ALREADY_LOADED = 5
IN_PROGRESS = (36, 37)
RUNS_ALREADY = 37
LEAVING = ("SIGTERMed", "SIGKILLed")
"""States of a service that is being taken away."""
STATUS_LINE = re.compile(r"^\t(state|pid|last exit code) = (.+)$", re.MULTILINE)
"""One tab: nested sections of what ``print`` says have keys of the same names further in."""


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


def said(result: Result) -> str:
    """What it says of a call that was refused."""
    return f"{result.text} (status {result.status})" if result.text else f"status {result.status}"


def lines_of(printed: Result) -> dict[str, str]:
    """What ``print`` says of a service itself."""
    return dict(STATUS_LINE.findall(printed.text))


def state_of(printed: Result) -> str:
    """By what ``print`` says of it; empty: there is no such service."""
    return "" if printed.status else lines_of(printed).get("state", "unknown")
