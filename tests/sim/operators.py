"""Whoever submits and cancels jobs: asks another node if the first gives no answer."""

from __future__ import annotations

from collections.abc import Callable

from elasticd.core import effects as e
from elasticd.core.messages import JobRecord
from elasticd.types import JobId

from .cluster import Cluster, JobShape, spec_of
from .host import Host

_PATIENCE_SECONDS = 5.0


class Operator:
    """Every request is repeated until somebody has answered it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def submit(self, shape: JobShape, host: Host | None = None) -> JobId:
        number = len(self.cluster.specs) + 1
        spec = spec_of(f"job{number}", shape)
        job = JobId(f"job{number}-{number}-abcd")
        self.cluster.specs[job] = spec
        record = JobRecord(job, number, spec.to_dict(), "archive", "queued")
        self._ask(lambda request: e.Submit(request, record), f"submit {job}", host)
        return job

    def cancel(self, job: JobId, host: Host | None = None) -> None:
        self._ask(lambda request: e.Cancel(request, job), f"cancel {job}", host)

    def _ask(self, event: Callable[[int], e.Event], text: str, host: Host | None) -> None:
        cluster = self.cluster
        request = len(cluster.requests) + 1
        cluster.requests[request] = text
        self._try(request, event, host)

    def _try(self, request: int, event: Callable[[int], e.Event], host: Host | None) -> None:
        cluster = self.cluster
        if request in cluster.answers:
            return
        living = cluster.living()
        if host is None and living:
            host = cluster.rng.choice(living)
        if host is not None:
            cluster.say("operator", f"{cluster.requests[request]} on {host.name}")
            host.post(event(request))
        cluster.after(_PATIENCE_SECONDS, lambda: self._try(request, event, None))
