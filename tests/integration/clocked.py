"""The daemon with a clock that jumps: ``clocked.py run --home HOME``.

The seconds by which it is off are read from ``HOME/clock.json``, ``{"monotonic": s, "wall": s}``,
each time that somebody looks at it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

from elasticd.shell import clock

OFFSETS = "clock.json"


def shifted(read: Callable[[], float], name: str, file: Path) -> Callable[[], float]:
    """The clock ``read``, off by what ``file`` says under ``name``."""

    def seconds() -> float:
        return read() + float(json.loads(file.read_bytes())[name])

    return seconds


def main() -> int:
    file = Path(sys.argv[sys.argv.index("--home") + 1]).absolute() / OFFSETS
    clock.monotonic_seconds = shifted(clock.monotonic_seconds, "monotonic", file)
    clock.unix_seconds = shifted(clock.unix_seconds, "wall", file)
    # Only now: whoever imports the clock's functions by name shall get these.
    from elasticd.shell import daemon

    return daemon.main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
