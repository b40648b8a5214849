"""What the system's own tools print. Who asks one takes an :data:`Ask`: a test plays the tool."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence

SECONDS = 5.0

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
