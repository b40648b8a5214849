"""Follows the jobs that somebody looks at, each in a thread: its calls block, and a daemon that
hangs holds no page up."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from elasticd.cli.keptlosses import kept_curves
from elasticd.cli.monitors.scene import Event, Recollection
from elasticd.cli.reports.chronicle import Reader
from elasticd.cli.watch import EventTail
from elasticd.client.client import Client
from elasticd.dashboard.metrics import ToldJob
from elasticd.dashboard.telling import WatchedJob
from elasticd.errors import ElasticdError, NoDaemonError, ProtocolError

MOST_WATCHES = 16
"""Jobs that are followed at once; of more, those are left that nobody has asked for the longest."""
MOST_RATES = 600
POLL_SECONDS = 0.5
AGAIN_SECONDS = 1.0


class JobWatch:
    """Reads a job's events from the first one, and goes on until the job has ended."""

    def __init__(self, client: Client, job: str) -> None:
        self.job, self._client = job, client
        self.caught_up = threading.Event()
        """All events are read that there were."""
        self._tail = EventTail(client, job)
        self._lock = threading.Lock()
        self._reader, self._memory = Reader(), Recollection(job)
        self._rates: deque[tuple[float, float]] = deque(maxlen=MOST_RATES)
        self._checkpoint: Event | None = None
        self._taken = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name=f"watch {job}")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """It ends soon; nobody has to wait for that."""
        self._over.set()

    def wait(self) -> None:
        """Until it has ended: soon after :meth:`stop`, but for a daemon that doesn't answer."""
        self._thread.join()

    @property
    def lost(self) -> bool:
        """It has ended before its job: a daemon that has just begun may not know the job yet."""
        return self.caught_up.is_set() and not self._thread.is_alive() and not self._tail.ended

    @property
    def taken(self) -> int:
        """So many events are read."""
        return self._taken

    def looked(self, job: Mapping[str, Any], now: float) -> None:
        """What ``status`` says of the job."""
        speed = job.get("steps_per_second")
        with self._lock:
            self._memory.looked(job)
            if isinstance(speed, int | float):
                self._rates.append((now, float(speed)))

    def told(self, now: float) -> ToldJob:
        """What its events tell."""
        with self._lock:
            return ToldJob(self._reader.result(now), self._checkpoint)

    def seen(self, now: float) -> WatchedJob:
        """All that pages are shown of it."""
        with self._lock:
            events, curve = tuple(self._memory.events), self._memory.curve
            course, rates = self._reader.result(now), tuple(self._rates)
            return WatchedJob(self.job, course, events, tuple(curve.points), rates, curve.told())

    def _run(self) -> None:
        kept = kept_curves(self._client, self.job)
        with self._lock:
            self._memory.remember(kept)
        try:
            while not self._over.is_set() and not self._tail.ended:
                self._turn()
        except ElasticdError:  # the job was forgotten, say: there is no more to be told
            pass
        finally:
            self.caught_up.set()
            self._tail.close()

    def _turn(self) -> None:
        try:
            event = self._tail.poll(POLL_SECONDS)
        except (NoDaemonError, ProtocolError):
            self._over.wait(AGAIN_SECONDS)
            return
        if event is None:
            self.caught_up.set()
            return
        with self._lock:
            self._taken += 1
            self._reader.take(event)
            self._memory.happened(event)
            if event.get("kind") == "checkpoint_committed":
                self._checkpoint = event


class Watches:
    """The jobs that are followed. Used from several threads."""

    def __init__(self, client: Client, clock: Callable[[], float] = time.monotonic) -> None:
        self._client, self._clock = client, clock
        self._lock = threading.Lock()
        self._found: dict[str, JobWatch] = {}

    def of(self, job: str) -> JobWatch:
        """That of a job, begun if need be."""
        with self._lock:
            watch = self._found.pop(job, None)
            if watch is None or watch.lost:
                watch = JobWatch(self._client, job)
                watch.start()
            self._found[job] = watch  # the last one now
            while len(self._found) > MOST_WATCHES:
                self._found.pop(next(iter(self._found))).stop()
            return watch

    def close(self) -> None:
        """Follow none any more. Returns when nothing is asked for them any more."""
        with self._lock:
            ended = list(self._found.values())
            self._found.clear()
        for watch in ended:
            watch.stop()
        for watch in ended:
            watch.wait()
