"""What a preflight has found counts when its job is submitted, and nodes are asked again first."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest

from elasticd.core.words.codec import to_plain
from elasticd.core.words.effects import Emit
from elasticd.core.words.records import JobRecord
from elasticd.preflight.needs import JobNeeds, JobSeen, NeedsMet
from elasticd.preflight.seen import REPORT_NAME, NodeFacts, NodeSeen, NodeUnseen
from elasticd.recovery.fitness import Unfit, left_out
from elasticd.shell.control import foresight
from elasticd.shell.control.foresight import COUNTS_SECONDS, Foresight
from elasticd.shell.control.preflightdesk import PreflightDesk
from elasticd.types import JobId, NodeId, NodeRole

A, B = NodeId("a"), NodeId("b")
NOW = 1e9
NEEDS = JobNeeds("lm", archive="ab", modules=("tokens",))
GOOD = NeedsMet("3.12.4", "0.32.4", memory_bytes=64 << 30, free_bytes=100 << 30)
FACTS = NodeFacts("0.1", "3.12.4", "0.32.4", free_bytes=100 << 30, memory_bytes=64 << 30)
WITHOUT = {
    "check": "packages", "where": "b", "verdict": "fail", "value": "it doesn't find tokens",
    "cure": "Install it",
}  # fmt: skip
RECORD = JobRecord(
    JobId("lm-1-aaaa"), 1, {"job": {"name": "lm"}, "world": {"min": 1}}, "ab", "queued"
)


@dataclass
class Desk:
    """Two nodes: what each has of a job's needs; None: it never says."""

    home: Path
    having: dict[NodeId, NeedsMet | None] = field(default_factory=lambda: {A: GOOD, B: GOOD})
    drained: tuple[NodeId, ...] = ()
    asked: list[NodeId] = field(default_factory=list)
    told: list[Emit] = field(default_factory=list)
    waited: list[bool] = field(default_factory=list)

    def now(self) -> float:
        return NOW

    def nodes(self) -> list[NodeId]:
        return [A, B]

    def duty(self, node: NodeId) -> tuple[NodeRole, bool]:
        return "train", node in self.drained

    async def ask(self, node: NodeId) -> NodeSeen:
        return NodeSeen(node, FACTS)

    async def ask_job(self, node: NodeId, needs: JobNeeds) -> JobSeen | NodeUnseen:
        assert needs == NEEDS
        self.asked.append(node)
        had = self.having[node]
        if had is None:
            await asyncio.Event().wait()
        assert had is not None
        return JobSeen(node, had)

    def keeps(self, *checks: Any, **changes: Any) -> None:
        report = {"time": NOW - 60, "checks": checks, "needs": to_plain(NEEDS), **changes}
        (self.home / REPORT_NAME).write_text(json.dumps(report))

    def waits(self) -> None:
        assert self.asked == [], "it waits from the first question on"
        self.waited.append(True)

    def foresee(self, record: JobRecord = RECORD) -> JobRecord:
        desk = cast(PreflightDesk, self)
        found, tell = asyncio.run(Foresight(desk, self.told.append).foresee(record, self.waits))
        assert self.told == []
        tell()
        return found


def test_a_node_on_which_a_check_fails_still_is_left_out_from_the_start(tmp_path: Path) -> None:
    desk = Desk(tmp_path, {A: GOOD, B: replace(GOOD, missing=("tokens",))})
    desk.keeps(WITHOUT)
    found = desk.foresee()
    (entry,) = found.unfit
    assert (entry.node, entry.turn, entry.foreseen) == (
        B,
        1,
        True,
    ) and "it doesn't find tokens" in entry.reason
    assert left_out(found.unfit) == {B: entry.reason} and replace(found, unfit=()) == RECORD
    assert [(e.kind, e.fields.get("culprit")) for e in desk.told] == [
        ("preflight_finished", None), ("node_unfit", B),
    ]  # fmt: skip
    fields = {"wrong": 1, "unfit": [B], "age_seconds": 60.0}
    assert desk.told[0].fields == fields and desk.told[0].job == RECORD.id


def test_one_that_was_mended_since_takes_part(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.keeps(WITHOUT)
    assert desk.foresee() == RECORD and sorted(desk.asked) == [A, B] and desk.waited
    assert [e.fields["unfit"] for e in desk.told] == [[]]


def test_of_one_that_does_not_say_it_soon_what_was_found_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(foresight, "FRESH_SECONDS", 0.1)
    desk = Desk(tmp_path, {A: GOOD, B: None})
    desk.keeps(WITHOUT)
    assert [type(entry) for entry in desk.foresee().unfit] == [Unfit]


def test_where_nothing_failed_nobody_is_asked_again(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.keeps({**WITHOUT, "verdict": "warn"})
    assert desk.foresee() == RECORD and desk.asked == []
    assert [e.kind for e in desk.told] == ["preflight_finished"]
    desk.drained = (B,)
    desk.told.clear()
    desk.keeps(WITHOUT)
    assert desk.foresee() == RECORD and desk.asked == [], "it doesn't train anyway"
    assert not desk.waited


@pytest.mark.parametrize(
    "changes",
    [
        {"needs": None},
        {"needs": to_plain(replace(NEEDS, archive="cd"))},
        {"needs": to_plain(replace(NEEDS, name="other"))},
        {"needs": to_plain(replace(NEEDS, archive=""))},
        {"time": NOW - COUNTS_SECONDS},
        {"time": NOW + 60},
        {"time": "soon"},
        {"checks": 7},
    ],
)
def test_what_is_of_another_job_or_too_old_says_nothing(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    desk = Desk(tmp_path)
    desk.keeps(WITHOUT, **changes)
    assert desk.foresee() == RECORD and not desk.told and not desk.asked


@pytest.mark.parametrize("text", ["", "[1]", "{}"])
def test_a_damaged_report_says_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / REPORT_NAME).write_text(text)
    desk = Desk(tmp_path)
    assert desk.foresee() == RECORD and desk.told == []
    (tmp_path / REPORT_NAME).unlink()
    assert desk.foresee() == RECORD and desk.told == []
