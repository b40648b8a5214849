"""A node tells people what its log of events says, once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from elasticd.core.jobs.notices import Around
from elasticd.core.words.requests.looking import TryNotices
from elasticd.errors import OperationError
from elasticd.settings.notify import NotifyRules
from elasticd.shell.clock import unix_seconds
from elasticd.shell.control import noticedesk
from elasticd.shell.control.hooks import HookCall, HookEnd
from elasticd.shell.control.noticedesk import NoticeDesk
from elasticd.shell.storage.eventlog import EventLog
from elasticd.shell.storage.eventreading import EventReading
from elasticd.types import NodeId

from .test_diskdesk import NOBODY

ME = NodeId("a")
SECRET = "https://h/T0KEN"


@dataclass
class Node:
    log: EventLog
    status: int = 0
    calls: list[HookCall] = field(default_factory=list)

    async def run(self, call: HookCall) -> HookEnd:
        self.calls.append(call)
        return HookEnd(self.status, "")

    def happened(self, kind: str, reason: str, fields: dict[str, Any]) -> None:
        event = {"kind": kind, "job": None, "node": ME, "reason": reason, **fields}
        self.log.write({"time": unix_seconds(), **event})

    def desk(self, **rules: Any) -> NoticeDesk:
        made = NotifyRules(**rules)
        around = Around(ME, ME, {ME: made.told})
        reading = EventReading(self.log)
        return NoticeDesk(made, "lab", reading, lambda: around, self.happened, self.run)

    def kinds(self) -> list[str]:
        return [event["kind"] for run in self.log.runs(None) for event in run]  # type: ignore[union-attr]


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    monkeypatch.setattr(noticedesk, "LOOK_SECONDS", 0.01)
    return Node(EventLog(tmp_path, "a/1"))


def run_until(desk: NoticeDesk, done: Callable[[], bool]) -> None:
    async def main() -> None:
        rounds = asyncio.create_task(desk.rounds())
        async with asyncio.timeout(20):
            while not done():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        rounds.cancel()
        await asyncio.wait([rounds])

    asyncio.run(main())


def failed(node: Node, job: str = "j-1-aaaa") -> None:
    event = {"kind": "job_failed", "job": job, "node": ME, "reason": "a\x1b[31mb"}
    node.log.write({"time": unix_seconds(), **event})


def test_once_also_by_the_next_run(node: Node) -> None:
    failed(node)
    run_until(node.desk(job_failed=("/bin/x",)), lambda: "notified" in node.kinds())
    assert [call.words for call in node.calls] == [("/bin/x",)]
    assert b"has failed: a\\\\x1b[31mb" in node.calls[0].stdin
    failed(node, "j-2-aaaa")
    run_until(node.desk(job_failed=("/bin/x",)), lambda: node.kinds().count("notified") == 2)
    assert len(node.calls) == 2


def test_what_fails_is_said_once_without_the_secret(node: Node) -> None:
    failed(node)
    node.status = 1
    run_until(node.desk(job_failed=SECRET), lambda: "notify_failed" in node.kinds())
    failed(node, "j-2-aaaa")
    run_until(node.desk(job_failed=SECRET), lambda: node.kinds().count("notify_failed") == 2)
    assert len(node.calls) == 2
    assert SECRET not in repr(node.log.runs(None))


def test_a_clock_that_is_a_day_behind_silences_nobody(node: Node) -> None:
    """What another node had when it was met is as old as it says; what it tells then is news."""
    day = 86_400.0

    def of_another(number: int) -> None:
        event = {"kind": "job_failed", "job": f"j-{number}-aaaa", "node": "b", "reason": "why"}
        node.log.add({"time": unix_seconds() - day, "origin": "b/1", "number": number, **event})

    def met() -> bool:
        if node.calls and not node.log.news.has({"origin": "b/1", "number": 2}):
            node.log.news.meets("b", "1")
            node.log.news.heard("b", {"b/1": 1})
            of_another(1)
            of_another(2)
        return node.kinds().count("notified") == 2

    failed(node, "j-9-aaaa")
    run_until(node.desk(job_failed=("/bin/x",)), met)
    told = [json.loads(call.stdin)["job"] for call in node.calls]
    assert told == ["j-9-aaaa", "j-2-aaaa"]


def test_events_that_are_strange_are_passed_over(node: Node) -> None:
    for strange in ({"kind": "node_lost"}, {"kind": "world_formed", "generation": {}}):
        node.log.write({"time": unix_seconds(), "job": "j-9-aaaa", **strange})
    failed(node)
    run_until(node.desk(job_failed=("/bin/x",)), lambda: "notified" in node.kinds())


def test_a_test_tells_at_once(node: Node) -> None:
    desk = node.desk(job_failed=("/bin/x",), parked=SECRET)
    tried = asyncio.run(desk.try_them(TryNotices(), NOBODY))["tried"]
    assert tried == [{"event": e, "error": None, "output": ""} for e in ("job_failed", "parked")]
    node.status = 75
    (one,) = asyncio.run(desk.try_them(TryNotices("parked"), NOBODY))["tried"]
    assert one["error"] == "the webhook ended with status 75 ()" and len(node.calls) == 3
    with pytest.raises(
        OperationError, match="says nothing of node_lost: it has job_failed, parked"
    ):
        asyncio.run(desk.try_them(TryNotices("node_lost"), NOBODY))
    with pytest.raises(OperationError, match=r"taken no .* settings_refused"):
        asyncio.run(node.desk().try_them(TryNotices(), NOBODY))
