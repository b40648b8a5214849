"""What a node knows of announcements."""

from __future__ import annotations

from elasticd.checkpoints.announced import Announced
from elasticd.types import JobId

from .test_crash import JOB, manifest_of


def test_a_job_that_goes_on_from_before_what_was_announced_has_announced_nothing() -> None:
    known = Announced()
    assert known.newest(JOB) == -1
    known.tell(JOB, 20)
    # Another copy of the newest is stored, and newer ones are.
    for step in (20, 30):
        known.store(manifest_of(step))
    assert (known.newest(JOB), known.newest(JobId("other"))) == (20, -1)
    known.store(manifest_of(10))
    assert known.newest(JOB) == -1
    known.tell(JOB, 10)
    assert known.newest(JOB) == 10
