"""What a node was told of checkpoints that are announced. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from elasticd.checkpoints.manifest import Manifest
from elasticd.types import JobId


@dataclass(slots=True)
class Announced:
    """The newest of each job, since the daemon began.

    A leader announces a checkpoint by what nodes have told it that they have. It may still do so
    with any but those that are older than one that it has announced.
    """

    _newest: dict[JobId, int] = field(default_factory=dict)

    def tell(self, job: JobId, step: int) -> None:
        """The checkpoint of that step is consistent."""
        self._newest[job] = step

    def store(self, made: Manifest) -> None:
        """A leader has this one stored. If that is older than one that was announced, the job goes
        on from before: what we were told says nothing any more."""
        if made.step < self._newest.get(made.job, -1):
            del self._newest[made.job]

    def newest(self, job: JobId) -> int:
        """The step of the newest one; -1: none is known."""
        return self._newest.get(job, -1)
