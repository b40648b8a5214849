"""What a node may remove of a job's checkpoints: by the job's record, and what it was told."""

from __future__ import annotations

import math
from collections.abc import Callable

from elasticd.checkpoints.announced import Announced
from elasticd.checkpoints.retention import Policy, policies_of
from elasticd.core.words.records import JobRecord
from elasticd.errors import OperationError
from elasticd.settings.job import JobSpec
from elasticd.types import JobId


class Retaining:
    """
    Attributes:
        record_of: the record of a job that runs or ran here, or OperationError.
        told: what leaders have said since the daemon began; to be kept up to date.
    """

    def __init__(self, record_of: Callable[[JobId], JobRecord]) -> None:
        self.record_of = record_of
        self.told = Announced()

    def policies(self, job: JobId) -> list[Policy]:
        """Those of the job's settings. OperationError: it is not known."""
        return policies_of(JobSpec.from_dict(self.record_of(job).spec).checkpoint, {})

    def announced(self, job: JobId) -> float:
        """The step of the newest checkpoint that is announced: no older one will be. -1: none is
        known; infinite: the job has no leader any more."""
        try:
            over = self.record_of(job).ended
        except OperationError:
            over = True
        return math.inf if over else self.told.newest(job)
