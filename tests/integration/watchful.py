"""The daemon that notes what its loop waits for: ``watchful.py run --home HOME``.

From its first word to its last no call that walks a folder, syncs a file, runs a program to its end
or waits for a thread may be made in the loop's thread. How long each took here means nothing: on
another disk it takes seconds. What it finds is in HOME/waits.json when it has ended.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from elasticd.shell import daemon
from elasticd.shell.assembly.daemon import Daemon

FILE_NAME = "waits.json"
WAITS: tuple[tuple[Any, str], ...] = (
    (os, "fsync"),
    (os, "scandir"),
    (os, "listdir"),
    (shutil, "rmtree"),
    (subprocess, "run"),
    (threading.Thread, "join"),
)
SHOWN_FRAMES = 6


class Watchful(Daemon):
    """Its loop is the thread that runs it."""

    async def run(self) -> int:
        found: Counter[str] = Counter()
        loop = threading.get_ident()

        def noted(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
            def noting(*args: Any, **named: Any) -> Any:
                if threading.get_ident() == loop:
                    found[f"{name}: {_where()}"] += 1
                return call(*args, **named)

            return noting

        known = [(owner, name, getattr(owner, name)) for owner, name in WAITS]
        for owner, name, call in known:
            setattr(owner, name, noted(name, call))
        try:
            return await super().run()
        finally:
            for owner, name, call in known:
                setattr(owner, name, call)
            Path(FILE_NAME).write_text(json.dumps(found))  # noqa: ASYNC240  the home; it has ended


def _where() -> str:
    frames = traceback.extract_stack()[:-2][-SHOWN_FRAMES:]
    return " < ".join(f"{Path(f.filename).name}:{f.lineno} {f.name}" for f in reversed(frames))


if __name__ == "__main__":
    setattr(daemon, "Daemon", Watchful)  # noqa: B010  what main runs
    sys.exit(daemon.main(sys.argv[1:]))
