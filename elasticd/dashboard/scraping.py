"""What Prometheus is told, asked for when it asks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from elasticd.build import build
from elasticd.cli.monitors.scene import Scene
from elasticd.client.client import Client
from elasticd.core.words.requests.looking import ShowStatus
from elasticd.dashboard.metrics import ClusterFigures, ToldJob
from elasticd.dashboard.watching import Watches
from elasticd.errors import ElasticdError

ENDED_JOBS = 5
MOST_JOBS = 8
"""Whose events are followed for it."""
FRESH_SECONDS = 1.0
"""So long several scrapers are told the same."""
CATCH_UP_SECONDS = 3.0
"""What has not been read of a job's events by then is told next time."""


class Scraping:
    """Used from several threads; one asks, the others have its answer."""

    def __init__(
        self,
        client: Client,
        watches: Watches,
        clock: Callable[[], float] = time.time,
        patience: float = CATCH_UP_SECONDS,
    ) -> None:
        self._client, self._watches, self._clock = client, watches, clock
        self._patience = patience
        self._lock = threading.Lock()
        self._figures: ClusterFigures | None = None
        self._asked = 0.0

    def figures(self) -> ClusterFigures:
        with self._lock:
            if self._figures is None or time.monotonic() - self._asked >= FRESH_SECONDS:
                self._figures = self._look()
                self._asked = time.monotonic()
            return self._figures

    def _look(self) -> ClusterFigures:
        try:
            status = self._client.request(ShowStatus(ended=ENDED_JOBS))
        except ElasticdError:
            return ClusterFigures(build(), None)
        return ClusterFigures(build(), status, self._told(status))

    def _told(self, status: Mapping[str, Any]) -> dict[str, ToldJob]:
        watches = [self._watches.of(job) for job in followed(status)]
        until = time.monotonic() + self._patience
        ready = [w for w in watches if w.caught_up.wait(max(0.0, until - time.monotonic()))]
        now = self._clock()
        return {watch.job: watch.told(now) for watch in ready}


def followed(status: Mapping[str, Any]) -> list[str]:
    """Whose events are: those that wait for their turn come last, since they have told little."""
    jobs = sorted(Scene(status).jobs, key=lambda job: job.get("state") == "queued")
    return [str(job.get("id")) for job in jobs][:MOST_JOBS]
