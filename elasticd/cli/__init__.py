"""``elasticctl``, the user's command line."""

from __future__ import annotations

__all__ = ["main"]


def main() -> None:
    """Entry point of the program; ends the process."""
    from elasticd.cli.entry import run

    raise SystemExit(run())
