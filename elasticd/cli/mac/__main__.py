"""One probe, in a process of its own: ``python -m elasticd.cli.mac NAME FOLDER``."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from pathlib import Path

from elasticd.cli.interrupts import Interrupts
from elasticd.cli.mac.probe import MacProbe
from elasticd.cli.mac.probes import probe_named
from elasticd.cli.screen import json_line


def main() -> None:
    """Of the command line."""
    name, folder = sys.argv[1:]
    probe = probe_named(name)
    assert probe is not None
    play(probe, Path(folder))


def play(probe: MacProbe, folder: Path) -> None:
    """What it finds goes to stdout alone, as the last line; what others print goes to stderr. One
    that is late gets SIGTERM, and takes away what it has put on this machine."""
    told = os.dup(1)
    os.dup2(2, 1)
    # Not sys.exit: threads of MLX may not let the interpreter go.
    try:
        with Interrupts().in_force():
            found = probe.run(folder)
    except KeyboardInterrupt:
        os._exit(1)
    os.write(told, json_line(asdict(found)).encode() + b"\n")
    os._exit(0)


if __name__ == "__main__":
    main()
