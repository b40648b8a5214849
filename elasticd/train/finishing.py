"""What Python does at the end of a script, for a process that doesn't let it take itself down."""

from __future__ import annotations

import atexit
import contextlib
import sys
import threading
from collections.abc import Callable
from typing import NoReturn

THREADS_SECONDS, EXIT_SECONDS = 5.0, 60.0
"""So long the process of a script that has failed waits for threads that it has left; and for what
it has asked to be done at its exit, too."""


def flush_output() -> None:
    """What the script has printed, as Python does at its end."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, its reader gone
            stream.flush()


def finish_interpreter() -> None:
    """What Python does when a script is over, before it takes itself down."""
    # Pools of threads end only by what this calls first; then it joins threads.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    flush_output()


def finish_failed(
    leave: Callable[[], NoReturn],
    threads_seconds: float = THREADS_SECONDS,
    seconds: float = EXIT_SECONDS,
) -> None:
    """As :func:`finish_interpreter`, but what never ends is not waited for: the reason of the
    script's end is to be told, and not that of a hang."""
    late = threading.Timer(seconds, leave)
    late.daemon = True
    late.start()
    threads = threading.Thread(target=_end_threads, daemon=True)
    threads.start()
    threads.join(threads_seconds)
    atexit._run_exitfuncs()
    flush_output()


def _end_threads() -> None:
    """As ``threading._shutdown``, which waits for the main thread, too, where another calls it."""
    for end in reversed(threading._threading_atexits):  # type: ignore[attr-defined]
        end()
    for thread in threading.enumerate():
        if not thread.daemon and thread is not threading.main_thread():
            thread.join()
