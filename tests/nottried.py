"""What was skipped, and why: told at the end of .ci/run, where nobody reads 3,000 dots.

.ci/run names a file in the environment, to which each run of pytest adds its lines.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

FILE = "NOT_TRIED_FILE"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """A line for each test, or file, that was skipped: the reason and where it is."""
    if not (name := os.environ.get(FILE)) or "PYTEST_XDIST_WORKER" in os.environ:
        return  # who runs tests beside others tells the process that has started it
    with Path(name).open("a", encoding="utf-8") as file:
        for report in terminalreporter.stats.get("skipped", []):
            where, reason = report.nodeid.partition("::")[0], ""
            if isinstance(report.longrepr, tuple):
                reason = str(report.longrepr[2]).removeprefix("Skipped: ")
            file.write(f"{' '.join(reason.split())} ({where})\n")
