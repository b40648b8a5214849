"""``elasticctl jobs --watch``: the list of jobs, looked at each second."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from elasticd.cli import output
from elasticd.cli.screen import Line
from elasticd.cli.tables import cut, fitted, fold, within
from elasticd.errors import ElasticdError

LOOK_SECONDS = 1.0

Jobs = Sequence[Mapping[str, Any]]


class JobsLookout:
    """Has the newest list. It is asked for in a thread: no daemon that hangs holds the keys."""

    def __init__(self, ask: Callable[[], Jobs], first: Jobs) -> None:
        self._ask = ask
        self.jobs, self.trouble = first, ""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="jobs")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """It ends soon; nobody has to wait for that."""
        self._over.set()

    def turn(self) -> None:
        """Look once. What was seen last stays if nobody answers."""
        try:
            self.jobs, self.trouble = self._ask(), ""
        except ElasticdError as error:
            self.trouble = str(error)

    def _run(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            self.turn()


def picture(jobs: Jobs, trouble: str, width: int, height: int, now: float) -> list[Line]:
    """As many lines as the terminal has; what has no room below is counted. ``now``: Unix time."""
    counts = Counter(str(job.get("state")) for job in jobs)
    said = ", ".join(f"{count} {state}" for state, count in counts.items()) or "no jobs yet"
    clock = time.strftime("%H:%M:%S", time.localtime(now))
    lines: list[Line] = [[(part, "bold")] for part in fold(f"{clock}  {said}", width)]
    lines += [[(cut(trouble, width), "red")]] if trouble else []
    lines.append([("", "")])
    table = within(fitted(output.JOBS, output.job_rows(jobs), width), width) if jobs else []
    room = max(0, height - len(lines) - 1)
    lines += table[:room]
    if (rest := len(table) - room) > 0:
        lines.append([(cut(f"… {rest} more lines: 'elasticctl jobs'; q leaves", width), "dim")])
    else:
        lines.append([("q leaves", "dim")])
    return lines
