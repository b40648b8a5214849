"""Whoever submits and cancels jobs: asks another node if the first gives no answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from elasticd.core.words import effects as e
from elasticd.core.words.records import JobRecord
from elasticd.recovery.fitness import Unfit
from elasticd.types import JobId, NodeId

from .cluster import Cluster, JobShape, spec_of
from .host import Host

_PATIENCE_SECONDS = 5.0


class Operator:
    """Every request is repeated until somebody has answered it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._chance = cluster.chances.of("operator")
        self.lasting: Counter[str] = Counter()
        """How often each order is to be taken back yet."""

    def submit(self, shape: JobShape, host: Host | None = None) -> JobId:
        number = len(self.cluster.specs) + 1
        spec = spec_of(f"job{number}", shape)
        job = JobId(f"job{number}-{number}-abcd")
        self.cluster.specs[job], self.cluster.shapes[job] = spec, shape
        unfit = tuple(
            Unfit(node, 1, "its preflight fails", foreseen=True) for node in sorted(shape.foreseen)
        )
        record = JobRecord(job, number, spec.to_dict(), "archive", "queued", unfit=unfit)
        self._ask(lambda request: e.Submit(request, record), f"submit {job}", host)
        return job

    def cancel(self, job: JobId, host: Host | None = None) -> None:
        self._ask(lambda request: e.Cancel(request, job), f"cancel {job}", host)

    def pause(self, job: JobId, host: Host | None = None) -> int:
        return self._ask(lambda request: e.Pause(request, job, True), f"pause {job}", host)

    def resume(self, job: JobId, host: Host | None = None) -> int:
        return self._ask(lambda request: e.Pause(request, job, False), f"resume {job}", host)

    def retry(self, job: JobId, host: Host | None = None, *, memory: bool = False) -> int:
        what = f"retry {job} with all its memory" if memory else f"retry {job}"
        return self._ask(lambda request: e.Retry(request, job, memory), what, host)

    def forget(self, job: JobId, host: Host | None = None) -> int:
        return self._ask(lambda request: e.Forget(request, job), f"forget {job}", host)

    def dismiss(self, node: NodeId, host: Host | None = None) -> int:
        return self._ask(lambda request: e.Dismiss(request, node), f"dismiss {node}", host)

    def drain(self, node: NodeId, host: Host | None = None) -> int:
        return self._ask(lambda request: e.Drain(request, node, True), f"drain {node}", host)

    def undrain(self, node: NodeId, host: Host | None = None) -> int:
        return self._ask(lambda request: e.Drain(request, node, False), f"undrain {node}", host)

    def drain_for(self, node: NodeId, seconds: float, host: Host | None = None) -> None:
        """Drain it, and undrain it so long after that was answered."""

        def drained() -> bool:
            nodes = [each.node for each in self.cluster.living()]
            return not nodes or any(n is not None and n.tables.nodes.draining(node) for n in nodes)

        request = self.drain(node, host)
        self._undo(request, f"drain {node}", seconds, lambda: self.undrain(node), drained)

    def pause_for(
        self, job: JobId, seconds: float, host: Host | None = None, *, rests: bool = False
    ) -> None:
        """Pause it, and resume it so long after that was answered; ``rests``: after it rests."""

        def paused() -> bool:
            record = self.cluster.record_of(job)
            return record is None or (record.paused and not record.ended)

        def may_go_on() -> bool:
            record = self.cluster.record_of(job)
            return not rests or not paused() or (record is not None and record.state != "running")

        request = self.pause(job, host)
        self._undo(request, f"pause {job}", seconds, lambda: self.resume(job), paused, may_go_on)

    def _undo(
        self,
        request: int,
        what: str,
        seconds: float,
        undo: Callable[[], object],
        lasts: Callable[[], bool],
        done: Callable[[], bool] = lambda: True,
    ) -> None:
        """Take back an order that long after it was answered and ``done``, until somebody living
        says that it does not last: a cut-off side that has missed orders takes one whose version
        loses when sides meet."""
        cluster = self.cluster
        self.lasting[what] += 1

        def again() -> None:
            self.lasting[what] -= 1
            undo()
            cluster.after(_PATIENCE_SECONDS, insist)

        def insist() -> None:
            if lasts() and not self.lasting[what]:
                undo()
                cluster.after(_PATIENCE_SECONDS, insist)

        def look() -> None:
            if request in cluster.answers and done():
                cluster.after(seconds, again)
            else:
                cluster.after(0.05, look)

        look()

    def _ask(self, event: Callable[[int], e.Event], text: str, host: Host | None) -> int:
        cluster = self.cluster
        request = len(cluster.requests) + 1
        cluster.requests[request] = text
        self._try(request, event, host)
        return request

    def _try(self, request: int, event: Callable[[int], e.Event], host: Host | None) -> None:
        cluster = self.cluster
        if request in cluster.answers:
            return
        living = cluster.living()
        if host is None and living:
            host = self._chance.choice(living)
        if host is not None:
            cluster.say("operator", f"{cluster.requests[request]} on {host.name}")
            host.post(event(request))
        cluster.after(_PATIENCE_SECONDS, lambda: self._try(request, event, None))
