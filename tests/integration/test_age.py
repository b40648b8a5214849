"""A daemon whose home has two years of life: 20,000 jobs, some with long reasons, of which as many
runs of daemons have told."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from elasticd.client.client import Client
from elasticd.core.words.requests.jobs import ForgetJob
from elasticd.core.words.requests.looking import ReadEvents, ShowStatus
from elasticd.errors import OperationError
from elasticd.types import JobId
from tests.benchmarks import aged_home
from tests.benchmarks.bench_age import await_members, await_that, running, settle
from tests.ports import free_ports

pytestmark = [
    pytest.mark.process, pytest.mark.deep, pytest.mark.alone, pytest.mark.timeout(900),
]  # fmt: skip

EVENTS = 100_000
MOST_BYTES = 160 << 20
"""Of the memory of a daemon with that home, joined and telling another node all of it: 110 MiB were
measured. One without any life has 51."""
LISTED = 10


def test_a_home_with_two_years_of_life_joins_and_answers_in_little_memory(tmp_path: Path) -> None:
    aged, young = tmp_path / "aged", tmp_path / "young"
    aged_home.make(aged, aged_home.JOBS, EVENTS)
    settle(aged, young, free_ports(2))
    with running(young), running(aged) as daemon:
        await_members(aged, 2)
        found = Client(aged).request(ShowStatus(ended=LISTED))["jobs"]
        assert len(found) == LISTED
        job = JobId(found[-1]["id"])
        told = [*Client(aged).stream(ReadEvents(job))]
        assert len(told) == EVENTS // aged_home.JOBS and told[-1]["kind"].startswith("job_")
        await_that(young, partial(_knows, young, job))

        # Among all that the other one still is to be told.
        assert Client(aged).request(ForgetJob(job))["state"] == "forgotten"
        events = aged / "events" / f"{job}.events"
        await_that(aged, lambda: not events.exists())
        await_that(young, lambda: not _knows(young, job))
        assert daemon.memory_info().rss < MOST_BYTES
    with running(aged) as daemon:
        await_members(aged, 1)
        assert not _knows(aged, job) and not events.exists()
        assert daemon.memory_info().rss < MOST_BYTES


def _knows(home: Path, job: JobId) -> bool:
    try:
        return bool(Client(home).request(ShowStatus(job))["jobs"])
    except OperationError:
        return False
