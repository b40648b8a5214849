"""What the system's own tools print. Who asks one takes an :data:`Ask`: a test plays the tool."""

from __future__ import annotations

import platform
import subprocess
import sys
from collections.abc import Callable, Sequence

SECONDS = 5.0
MACOS_VERSION = ("/usr/bin/env", "SYSTEM_VERSION_COMPAT=0", "/usr/bin/sw_vers", "-productVersion")

Ask = Callable[[Sequence[str]], str]


def run(
    command: Sequence[str], timeout_seconds: float, errors: int = subprocess.DEVNULL
) -> tuple[int, str]:
    """Its exit status, and what it printed; with ``errors=subprocess.STDOUT`` also on stderr.

    Raises:
        OSError: there is no such program here, or it can't be started.
        subprocess.TimeoutExpired: it did not end in time.
    """
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=errors,
        timeout=timeout_seconds,
        check=False,
    )
    return done.returncode, done.stdout.decode("utf-8", "replace").strip()


def printed(command: Sequence[str]) -> str:
    """Empty if the tool isn't there, fails or hangs."""
    try:
        status, text = run(command, SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return text if status == 0 else ""


def release(system: str = sys.platform, ask: Ask = printed) -> str:
    """Of macOS, or of Linux's kernel. A program that was built with an older SDK is told 16.0 for
    macOS 26.0, and platform.mac_ver() with it (cpython, issue 135675)."""
    if system != "darwin":
        return platform.release()
    return ask(MACOS_VERSION) or platform.mac_ver()[0]
