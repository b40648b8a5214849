"""``elasticctl``, the user's command line."""

from __future__ import annotations

import signal
import sys

__all__ = ["main"]


def main() -> None:
    """Entry point of the program; ends the process."""
    try:
        from elasticd.cli.entry import run
    except KeyboardInterrupt:  # before anything has begun
        if "--json" in sys.argv:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            from elasticd.cli.entry import interrupted

            interrupted()
        raise SystemExit(130) from None

    raise SystemExit(run())
