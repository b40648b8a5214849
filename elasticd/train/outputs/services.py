"""Figures that go to a service: Weights & Biases, or trackio.

Their packages may wait for a network, so a thread of its own calls them, and no step waits for it.
What fails there is said once in the job's log, and ends no job.
"""

from __future__ import annotations

import contextlib
import queue
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from elasticd.errors import UsageError

MOST_WAITING = 10_000
"""Steps that wait to be told; later ones are left out while there are so many."""
CLOSE_SECONDS = 30.0
"""So long the end of a script waits until all is told."""


class ServiceRun(Protocol):
    """What both packages return for a run that is under way."""

    def log(self, values: dict[str, float], step: int) -> None: ...

    def finish(self) -> None: ...


Begin = Callable[[], ServiceRun]


@dataclass(frozen=True, slots=True)
class Destination:
    """Where the figures go. ``name`` of the run is also what it is found again by, if it
    ``resumes``."""

    project: str
    name: str
    resumes: bool
    folder: Path


def wandb(run: Destination) -> ServiceRun:
    """Files that it makes beside are below the run's folder."""
    import wandb as package  # pyright: ignore[reportMissingImports]

    run.folder.mkdir(parents=True, exist_ok=True)
    # Its default takes the process's own output away.
    settings = package.Settings(console="off", silent=True)
    told: dict[str, Any] = {"id": run.name, "resume": "allow"} if run.resumes else {}
    begun: ServiceRun = package.init(
        project=run.project, name=run.name, dir=str(run.folder), settings=settings, **told
    )
    return begun


def trackio(run: Destination) -> ServiceRun:
    """It has a database of its own on this machine, unless the environment says otherwise."""
    import trackio as package  # pyright: ignore[reportMissingImports]

    begun: ServiceRun = package.init(
        project=run.project,
        name=run.name,
        resume="allow" if run.resumes else "never",
        embed=False,
    )
    return begun


PACKAGES: dict[str, Callable[[Destination], ServiceRun]] = {"wandb": wandb, "trackio": trackio}
"""By the key of ``[track]``."""


def require(package: str) -> None:
    """Raises UsageError: it is not installed here."""
    if find_spec(package) is None:
        raise UsageError(
            f"[track] {package} needs the package {package} on every node: pip install {package}"
        )


class Teller:
    """To one service, from one process. What it is told of a step that is behind what it has told
    is left out: the job went back to an earlier state, and does the same steps again."""

    def __init__(self, package: str, begin: Begin) -> None:
        self._package, self._begin = package, begin
        self._waiting: queue.Queue[tuple[int, dict[str, float]] | None] = queue.Queue(MOST_WAITING)
        self._over = threading.Event()
        self._newest = -1
        self._telling = self._left_out = self._ended = False
        self._thread: threading.Thread | None = None

    def tell(self, step: int, values: Mapping[str, float]) -> None:
        """Returns at once."""
        if self._ended:
            return
        if self._thread is None:
            name = f"elasticd-{self._package}"
            self._thread = threading.Thread(target=self._work, name=name, daemon=True)
            self._thread.start()
        self._telling = True
        try:
            self._waiting.put_nowait((step, dict(values)))
        except queue.Full:
            if not self._left_out:
                self._left_out = True
                self._say(f"is too slow: steps from {step} on are left out")

    def leave(self) -> None:
        """Another rank tells from now on. This one may again."""
        if self._telling and not self._ended:
            self._telling = False
            with contextlib.suppress(queue.Full):  # else the run ends with the process
                self._waiting.put_nowait(None)

    def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """Tell what waits, for a while at most."""
        if self._thread is None or self._ended:
            return
        self._ended = True
        until = time.monotonic() + seconds
        self._over.set()
        with contextlib.suppress(queue.Full):
            self._waiting.put(None, timeout=seconds)
        self._thread.join(max(0.0, until - time.monotonic()))
        if self._thread.is_alive():
            self._say(f"has not taken everything after {seconds:g} s; the rest is lost")

    def _work(self) -> None:
        try:
            while not (self._over.is_set() and self._waiting.empty()):
                self._tell_one_run()
        except Exception as error:  # the package's, whatever it is
            self._ended = True
            self._say(f"is told nothing more: {type(error).__name__}: {error}")

    def _tell_one_run(self) -> None:
        """Until somebody else tells."""
        run = None
        while (item := self._waiting.get()) is not None:
            step, values = item
            if step <= self._newest:
                continue
            run = run or self._begin()
            run.log(values, step=step)
            self._newest = step
        if run is not None:
            run.finish()

    def _say(self, what: str) -> None:
        print(f"elasticd: {self._package} of [track] {what}", file=sys.stderr, flush=True)
