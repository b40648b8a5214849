"""What elasticctl disk lists is removed by elasticctl forget, also if no record names it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from elasticd.core.words.requests.every import Outcome
from elasticd.core.words.requests.jobs import ForgetJob, JobChanged
from elasticd.core.words.requests.looking import OpenOutputs, ShowDisk
from elasticd.errors import OperationError
from elasticd.shell.control.diskdesk import DiskDesk
from elasticd.shell.control.server import Stream, on
from elasticd.types import JobId, NodeId

KNOWN, STRAY = JobId("known-1-aaaa"), JobId("stray-2-bbbb")
NOBODY = cast(Stream, None)


class Room:
    """A node's home with files of two jobs, of which one has a record."""

    def __init__(self, home: Path) -> None:
        self.away: list[NodeId] = []
        self.removed: list[JobId] = []
        for job in (KNOWN, STRAY):
            (home / "logs" / job).mkdir(parents=True)
            (home / "logs" / job / "file").write_bytes(b"x" * 5000)
        self.desk = DiskDesk(
            home, NodeId("me"), lambda job: job == KNOWN, lambda: self.away,
            self.forget, self.remove,
        )  # fmt: skip

    async def forget(self, request: ForgetJob, stream: Stream) -> Outcome:
        return JobChanged(request.job, "forgotten")

    async def remove(self, job: JobId) -> None:
        self.removed.append(job)

    def ask(self, job: JobId) -> Any:
        return asyncio.run(self.desk.forget(ForgetJob(job), NOBODY))


def test_jobs_that_no_record_names_are_said_to_be_such(tmp_path: Path) -> None:
    found = asyncio.run(Room(tmp_path).desk.disk(ShowDisk(), NOBODY))
    assert {each["job"] for each in found["jobs"]} == {KNOWN, STRAY}
    assert found["strays"] == [STRAY]


def test_what_is_listed_can_be_removed(tmp_path: Path) -> None:
    room = Room(tmp_path)
    assert room.ask(KNOWN).state == "forgotten" and room.removed == []
    assert "removed from me" in room.ask(STRAY).state and room.removed == [STRAY]


def test_nothing_is_removed_of_which_a_node_that_is_away_may_know(tmp_path: Path) -> None:
    """After a reset its records may be the only ones."""
    room = Room(tmp_path)
    room.away = [NodeId("mac-2")]
    with pytest.raises(OperationError, match="mac-2 may have one, and is away"):
        room.ask(STRAY)
    for job in (JobId("nowhere-3-cccc"), JobId("../logs")):
        with pytest.raises(OperationError, match=f"no job {job}"):
            room.ask(job)
    assert room.removed == []


def test_how_files_are_had_of_which_no_record_tells(tmp_path: Path) -> None:
    room = Room(tmp_path)
    (tmp_path / "checkpoints" / STRAY).mkdir(parents=True)

    async def outputs(request: OpenOutputs, stream: Stream) -> None:
        raise OperationError(f"no job {request.job}" if request.job != KNOWN else "no output yet")

    handle = room.desk.saying(on(OpenOutputs, outputs))[OpenOutputs]

    def said(job: str) -> str:
        with pytest.raises(OperationError) as failed:
            asyncio.run(cast(Any, handle(OpenOutputs(JobId(job)), NOBODY)))
        return str(failed.value)

    assert said(KNOWN) == "no output yet"
    for job in ("nowhere-3-cccc", "../logs"):
        assert said(job) == f"no job {job}"
    assert said(STRAY) == (
        f"no record names {STRAY}, as after a reset, but me still has files of it:"
        f" 'elasticctl checkpoints export {STRAY} --out PATH' writes its parameters, its logs are"
        f" in {tmp_path / 'logs' / STRAY}"
    )
