"""Threads of which each is needed: if one fails the process ends, with the reason on stderr."""

from __future__ import annotations

import os
import sys
import threading
import traceback
from collections.abc import Callable


def start(name: str, work: Callable[[], None]) -> threading.Thread:
    """Run ``work`` in a thread that doesn't keep the process alive."""

    def guarded() -> None:
        try:
            work()
        except Exception:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)

    thread = threading.Thread(target=guarded, name=f"elasticd-{name}", daemon=True)
    thread.start()
    return thread
