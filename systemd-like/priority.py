"""Who comes first when a machine has more to do than processors.

A daemon uses little, but its peers take it for dead when its heartbeats are late. So the ranks give
way to their daemon, and what only measures or shows gives way to the ranks.

nice(2) does that between the processes of one group. Where Linux puts each session into a group of
its own (sched(7), autogroup), it shares the processors between the sessions and a nice value orders
nothing among them; then the session has a nice value, too. A process of ours leads its session.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

BEHIND_DAEMONS = 5
"""Ranks, spares and pages of the dashboard: about a third of a daemon's weight."""
BEHIND_RANKS = 7
"""Measurements and trials: two thirds of a rank's weight. With much less they come to no end on a
busy machine."""
BEHIND_STEPS = 5
"""Within a rank: who writes its checkpoints."""

_AUTOGROUP = Path("/proc/self/autogroup")
_TRIES = 50
_WAIT_SECONDS = 0.1, 0.3


def give_way(steps: int) -> None:
    """Let this process, and what it starts, have processors after those of less nice values. What
    the system refuses is left as it is."""
    with contextlib.suppress(OSError):
        os.nice(steps)
    if os.getsid(0) == os.getpid() and _AUTOGROUP.exists():
        now_or_soon(partial(_session_gives_way, steps))


def thread_gives_way(steps: int) -> None:
    """Let the calling thread come after the others of its process. Only on Linux: elsewhere a nice
    value is the whole process's."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            os.nice(steps)


def now_or_soon(change: Callable[[], None]) -> None:
    """Change a session's nice value, which Linux lets all but root do once in a tenth of a second,
    on the whole machine: a thread tries again where this wasn't the first."""
    try:
        change()
    except BlockingIOError:
        threading.Thread(target=_soon, args=(change,), name="priority", daemon=True).start()
    except (OSError, ValueError):
        pass


def _soon(change: Callable[[], None]) -> None:
    import tenacity  # here: few processes come this far, and all would load it

    tries = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(BlockingIOError),
        wait=tenacity.wait_random(*_WAIT_SECONDS),
        stop=tenacity.stop_after_attempt(_TRIES),
    )
    with contextlib.suppress(OSError, ValueError, tenacity.RetryError):
        tries(change)


def _session_gives_way(steps: int) -> None:
    _, _, now = _AUTOGROUP.read_text().rpartition(" ")
    _AUTOGROUP.write_text(str(min(int(now) + steps, 19)))
