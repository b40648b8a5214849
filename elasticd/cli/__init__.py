"""``elasticctl``, the user's command line."""

from __future__ import annotations

__all__ = ["main"]


def main() -> None:
    """Entry point of the program; ends the process."""
    try:
        from elasticd.cli.entry import run
    except KeyboardInterrupt:  # before anything has begun
        raise SystemExit(130) from None

    raise SystemExit(run())
