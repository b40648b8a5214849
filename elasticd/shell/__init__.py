"""The daemon: its processes, sockets and disks."""

from __future__ import annotations

import sys

if "structlog" not in sys.modules and "rich" not in sys.modules:
    # It loads what shows tracebacks in colours wherever that is installed. A daemon's go to a log.
    sys.modules["rich"] = None  # type: ignore[assignment]
    import structlog  # noqa: F401

    del sys.modules["rich"]
