"""What ``logs`` hands out of a time: nothing that was printed before it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from elasticd.core.node import Node
from elasticd.core.words.requests import ReadLogs
from elasticd.shell.control.logdesk import LogDesk
from elasticd.shell.control.server import Stream
from elasticd.shell.network.neighbours import Neighbours
from elasticd.shell.storage.eventreading import EventReading
from elasticd.shell.storage.states import States
from elasticd.types import JobId, NodeId

JOB = JobId("j")
A = NodeId("a")


@dataclass
class Cluster:
    """One node. Its trainer prints a line whenever somebody looks at the clock, and the daemon
    has noted the length of the log never: as late as it may be. The job ends after ten lines."""

    time: float = 0.0
    printed: bytes = b""
    said: str = ""
    records: dict[JobId, Any] = field(default_factory=dict)

    def now(self) -> float:
        self.time += 1
        if self.time <= 10:
            self.printed += b"%d\n" % self.time
        self.records[JOB] = SimpleNamespace(id=JOB, ended=self.time >= 10)
        return self.time

    async def last_members(self, job: JobId) -> list[str]:
        return [A]

    async def log_start(self, job: JobId, since: float, counted: bool) -> int:
        return 0

    async def log_bytes(self, job: JobId, offset: int, limit: int, counted: bool) -> bytes:
        return self.printed[offset:]

    async def send(self, piece: Any) -> None:
        self.said += piece.text

    def logs(self, request: ReadLogs) -> str:
        self.now()
        jobs = SimpleNamespace(known=self.records.__getitem__)
        node = SimpleNamespace(
            me=A,
            tables=SimpleNamespace(jobs=jobs),
            records=self.records,
            liveness=SimpleNamespace(living=lambda: [A]),
        )
        desk = LogDesk(
            cast(Node, node),
            cast(States, self),
            cast(EventReading, self),
            cast(Neighbours, None),
            self.now,
        )
        asyncio.run(desk.logs(request, cast(Stream, self)))
        return self.said


@pytest.mark.parametrize("tail", [None, 3])
@pytest.mark.parametrize("follow", [False, True])
def test_nothing_has_been_printed_since_a_time_to_come(tail: int | None, follow: bool) -> None:
    assert Cluster(time=8).logs(ReadLogs(JOB, None, follow, tail, since=1000.0)) == ""


def test_what_is_printed_from_then_on_is_followed() -> None:
    cluster = Cluster(time=5)
    said = cluster.logs(ReadLogs(JOB, follow=True, since=8.0))
    assert said.endswith("10\n") and cluster.time > 8


def test_of_a_time_that_has_been_all_is_handed_out_that_may_be_later() -> None:
    assert Cluster(time=8).logs(ReadLogs(JOB, since=1.0)) == "9\n10\n"
