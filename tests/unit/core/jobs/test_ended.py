"""Nodes with years of jobs tell each other little, and no message is too long."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

import pytest

from elasticd.core.context import Context
from elasticd.core.jobs import ended
from elasticd.core.jobs.ended import EndedJobs, digest
from elasticd.core.jobs.table import TOLD_AT_ONCE, JobTable
from elasticd.core.words import effects as e
from elasticd.core.words.frames import Frame, encode_frame
from elasticd.core.words.limits import MAX_REASON_LETTERS, PART_BYTES
from elasticd.core.words.records import JobRecord, JobState
from elasticd.core.words.tables import Jobs, JobsKept
from elasticd.ipc.frames import encode
from elasticd.types import JobId, NodeId

A, B = NodeId("a"), NodeId("b")


def record(number: int, state: JobState, reason: str | None = None, size: int = 500) -> JobRecord:
    spec = {"job": {"name": "job", "priority": 0}, "script": {"args": ["x" * size]}}
    return JobRecord(JobId(f"job-{number}-aaaa"), number, spec, "digest", state, reason)


class Pair:
    """Two tables, what they say to each other, how long the longest of it was, and of how many
    jobs one told the other at once."""

    def __init__(self, *records: list[JobRecord]) -> None:
        self.tables = {
            me: JobTable(
                Context(me, lambda: "nonce"), lambda: (A, B), lambda: (A, B), {r.id: r for r in own}
            )
            for me, own in zip((A, B), records, strict=True)
        }
        self.longest, self.most = 0, 0
        self.told: list[Jobs] = []
        self.before: NodeId | None = None
        """Which of them knows no digests."""
        self.waiting: deque[tuple[NodeId, e.Send]] = deque()

    def meet(self) -> None:
        self.tables[A].share([B])
        self.tables[B].share([A])
        self.settle()

    def meet_halfway(self) -> None:
        """The one has told a part of what the other lacks."""
        self.tables[A].share([B])
        self.tables[B].share([A])
        self.settle(messages=6)

    def lose(self) -> None:
        """What is under way."""
        self.waiting.clear()

    def settle(self, messages: int = 1_000_000) -> None:
        waiting = self.waiting
        for _ in range(messages):
            for me, table in self.tables.items():
                sent = [f for f in table.ctx.effects if isinstance(f, e.Send)]
                waiting += [(me, f) for f in sent]
                told = (f.message for f in sent if isinstance(f.message, Jobs))
                self.most = max(self.most, sum(len(each.records) for each in told))
                table.ctx.effects.clear()
            if not waiting:
                return
            me, sent_now = waiting.popleft()
            message = sent_now.message
            frame = Frame(("x", "y"), 1, 1, 1, 1, 1, message)
            self.longest = max(self.longest, len(encode(encode_frame(frame))))
            if isinstance(message, Jobs):
                if self.before is not None:
                    message = Jobs(message.records)
                self.told.append(message)
                self.tables[sent_now.to].on_jobs(me, message)
            elif isinstance(message, JobsKept):
                self.tables[sent_now.to].on_kept(me, message.jobs)

    @property
    def agreed(self) -> bool:
        return self.tables[A].records == self.tables[B].records


def test_long_reasons_are_clipped_and_keep_both_ends() -> None:
    text = "first line\n" + "x" * 1_500_000 + "\nValueError: the last line"
    old = [record(n, "failed", text) for n in range(17)]
    pair = Pair(old, [])
    pair.meet()
    assert pair.agreed and len(pair.tables[B].records) == 17
    assert pair.longest < 2 * PART_BYTES
    kept = pair.tables[B].records[old[0].id].reason
    assert kept is not None and len(kept) == MAX_REASON_LETTERS
    assert kept.startswith("first line") and kept.endswith("ValueError: the last line")
    assert f"it had {len(text)} letters" in kept


def test_thousands_of_ended_jobs_are_told_in_parts() -> None:
    pair = Pair([record(n, "finished", size=6000) for n in range(3000)], [record(20_000, "queued")])
    pair.meet()
    assert pair.agreed and len(pair.tables[B].records) == 3001
    assert pair.longest < 2 * PART_BYTES


def test_years_of_jobs_are_told_a_few_at_a_time() -> None:
    """To put 20,000 into messages took two seconds, in which nothing else left the daemon."""
    old = [record(n, "finished") for n in range(2000)]
    pair = Pair([*old, *(record(n, "failed") for n in range(3000, 3500))], old[:300])
    pair.meet()
    assert pair.agreed and pair.most <= TOLD_AT_ONCE
    told = [each.id for jobs in pair.told for each in jobs.records]
    assert len(told) < 2 * 2500


def test_who_asks_again_is_told_again() -> None:
    """It was restarted before it had all of it, or its answer was lost."""
    pair = Pair([record(n, "finished") for n in range(2000)], [])
    for _ in range(3):
        pair.tables[B].share([A])
        pair.tables[A].share([B])
        pair.settle(messages=20)
        pair.lose()
    assert not pair.agreed
    pair.meet()
    assert pair.agreed


def test_other_news_meanwhile_make_it_no_more_at_once() -> None:
    pair = Pair([record(n, "finished") for n in range(2000)], [])
    pair.meet_halfway()
    for number in range(5000, 5010):
        pair.tables[A].update(record(number, "queued"))
    pair.most = 0
    pair.settle()
    assert pair.agreed and pair.most <= TOLD_AT_ONCE + 10


def test_a_long_queue_is_told_in_parts() -> None:
    pair = Pair([record(n, "queued", size=6000) for n in range(3000)], [])
    pair.meet()
    assert pair.agreed and pair.longest < 2 * PART_BYTES


def test_what_both_have_is_not_told_again() -> None:
    both = [record(n, "finished") for n in range(1000)]
    more = record(1000, "failed", "why")
    pair = Pair([*both, more], both)
    pair.meet()
    assert pair.agreed
    assert sum(len(told.records) for told in pair.told) < 50, "the groups that differ, no more"


def test_the_end_of_a_job_is_told_to_who_still_runs_it() -> None:
    many = [record(n, "finished") for n in range(1000)]
    pair = Pair(many, [record(7, "running")])
    pair.meet()
    assert pair.agreed and pair.tables[B].records[many[7].id].state == "finished"


def test_a_daemon_that_knows_no_digests_is_told_all() -> None:
    many = [record(n, "finished") for n in range(1000)]
    table = Pair(many, []).tables[A]
    table.on_jobs(B, Jobs((record(2000, "running"),)))
    told = [f.message for f in table.ctx.effects if isinstance(f, e.Send) and f.to == B]
    known = {r.id for message in told if isinstance(message, Jobs) for r in message.records}
    assert {r.id for r in many} <= known


@pytest.mark.parametrize("had", [0, 1, 300])
def test_one_of_before_that_comes_in_the_place_of_a_newer_one_is_told_all(had: int) -> None:
    """It has lost its journal too, so nothing that it says by itself shows that it is of before."""
    many = [record(n, "finished") for n in range(1000)]
    pair = Pair(many, many[:had])
    pair.before = B
    pair.tables[A].on_jobs(B, Jobs((), ()))
    pair.tables[A].share([B])
    pair.tables[B].share([A])
    pair.settle()
    assert pair.agreed


def test_a_digest_follows_the_newest_record() -> None:
    here, there = EndedJobs(), EndedJobs()
    for each in (record(1, "failed"), record(2, "finished")):
        here.keep(each)
    there.keep(record(2, "finished"))
    there.keep(replace(record(1, "failed"), forgotten=True))
    assert len(here.differing(there.digests())) == 1
    there.keep(record(1, "failed"))
    assert here.differing(there.digests()) == ()


def test_a_node_that_begins_has_digests_of_what_it_remembers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those of 20,000 jobs took a quarter of a second when it met the first other node."""
    pair = Pair([record(n, "finished") for n in range(2000)], [])
    digested: list[JobId] = []

    def noted(each: JobRecord) -> int:
        digested.append(each.id)
        return digest(each)

    monkeypatch.setattr(ended, "digest", noted)
    table = pair.tables[A]
    table.share([B])
    assert digested == []
    table.update(record(7, "failed", "a newer one"))
    table.share([B])
    assert len(digested) <= 1
