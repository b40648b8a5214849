"""One probe, in a process of its own: ``python -m elasticd.cli.mac NAME FOLDER``."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from pathlib import Path

from elasticd.cli.mac.probes import probe_named
from elasticd.cli.screen import json_line


def main() -> None:
    """What it finds goes to stdout alone, as the last line; what others print goes to stderr."""
    name, folder = sys.argv[1:]
    probe = probe_named(name)
    assert probe is not None
    told = os.dup(1)
    os.dup2(2, 1)
    found = probe.run(Path(folder))
    os.write(told, json_line(asdict(found)).encode() + b"\n")
    # Not sys.exit: threads of MLX may not let the interpreter go.
    os._exit(0)


if __name__ == "__main__":
    main()
