"""What the system's own tools print. Who asks one takes an :data:`Ask`: a test plays the tool."""

from __future__ import annotations

import platform
import subprocess
import sys
from collections.abc import Callable, Sequence

SECONDS = 5.0
MACOS_VERSION = ("/usr/bin/env", "SYSTEM_VERSION_COMPAT=0", "/usr/bin/sw_vers", "-productVersion")

Ask = Callable[[Sequence[str]], str]


def printed(command: Sequence[str]) -> str:
    """Empty if the tool isn't there, fails or hangs."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode("utf-8", "replace").strip() if done.returncode == 0 else ""


def release(system: str = sys.platform, ask: Ask = printed) -> str:
    """Of macOS, or of Linux's kernel. A program that was built with an older SDK is told 16.0 for
    macOS 26.0, and platform.mac_ver() with it (cpython, issue 135675)."""
    if system != "darwin":
        return platform.release()
    return ask(MACOS_VERSION) or platform.mac_ver()[0]
