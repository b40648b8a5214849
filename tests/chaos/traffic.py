"""What other people do with the queue while a job is broken: they submit, cancel and hold jobs."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass

from elasticd.cli.submit import prepare
from elasticd.client.client import Client
from elasticd.core.words.requests.jobs import CancelJob, PauseJob, ResumeJob
from elasticd.errors import ElasticdError, OperationError
from elasticd.types import JobId
from tests.integration.alone import JOBS
from tests.integration.cluster import Cluster

KINDS = ("plain", "plain", "held", "cancelled", "greedy")
"""``greedy`` wants more nodes than there are; it is cancelled in the end."""
_PAUSE_SECONDS = (0.2, 2.0)
QUEUED_STEPS = 3


@dataclass(frozen=True)
class Queued:
    """A job that a daemon has said it took."""

    job: JobId
    kind: str

    def __str__(self) -> str:
        return f"{self.kind} {self.job}"


class Traffic:
    """A thread that fills the queue behind a job, as a seed says."""

    def __init__(self, cluster: Cluster, dice: random.Random) -> None:
        self._cluster = cluster
        self._plan = [
            (dice.uniform(*_PAUSE_SECONDS), dice.choice(KINDS)) for _ in range(dice.randint(0, 3))
        ]
        self.taken: list[Queued] = []
        self.refused: list[str] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        client = Client(self._cluster.home)
        for pause, kind in self._plan:
            if self._over.wait(pause):
                return
            least = self._cluster.size + 1 if kind == "greedy" else 1
            words = [f"world.min={least}", f"train.steps={QUEUED_STEPS}", f"job.name={kind}"]
            try:
                queued = Queued(JobId(client.submit(*prepare(JOBS / "job.toml", words))), kind)
            except ElasticdError as error:
                self.refused.append(str(error))
                continue
            self.taken.append(queued)
            with contextlib.suppress(ElasticdError):  # no daemon lives just now
                if kind == "held":
                    client.request(PauseJob(queued.job))
                elif kind == "cancelled":
                    client.request(CancelJob(queued.job))

    def stop(self) -> None:
        """Nothing is submitted any more."""
        self._over.set()
        self._thread.join()

    def settle(self, digest: Callable[[], str]) -> str:
        """All nodes live, and the job has ended: what was taken ends as was asked. In words.

        ``digest``: of the same steps without any fault.
        """
        for queued in self.taken:
            if queued.kind in ("cancelled", "greedy"):
                self._cluster.client.request(CancelJob(queued.job))
            elif queued.kind == "held":
                with contextlib.suppress(OperationError):  # nobody could be asked to hold it
                    self._cluster.client.request(ResumeJob(queued.job))
        for queued in self.taken:
            status = self._cluster.wait_end(queued.job, None)
            gone = queued.kind == "cancelled"
            ends = {"cancelled", "finished"} if gone else {"finished"}
            ends = {"cancelled"} if queued.kind == "greedy" else ends
            assert status["state"] in ends, f"{queued} is {status['state']}: {status['reason']}"
            if status["state"] == "finished":
                found = status["digest"]
                assert found == digest(), f"{queued} has the digest {found}, not {digest()}"
        return ", ".join(map(str, self.taken))
