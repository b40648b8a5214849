"""What the control plane remembers across restarts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from elasticd.core.recall import Recall, Record, without_promises
from elasticd.core.words.records import Heard, JobRecord, View, World
from elasticd.errors import StateError
from elasticd.shell.storage import journal
from elasticd.shell.storage.journal import Journal
from elasticd.shell.storage.records import JOURNAL_NAME, StableRecords
from elasticd.types import JobId, Lineage, NodeId, Stamp, Tag

NODE = NodeId("node-0")


def _view(counter: int) -> View:
    return View(Tag(counter, NODE, f"nonce-{counter}"), (NODE,))


def _record(state: str) -> JobRecord:
    return JobRecord(JobId("job-1"), 1, {"job": {"name": "job"}}, "archive", state)  # type: ignore[arg-type]


def test_a_restart_finds_promise_counter_and_jobs(tmp_path: Path) -> None:
    memory = StableRecords(tmp_path)
    memory.persist("view_attempt", _view(3))
    memory.persist("view_formed", _view(2))
    memory.persist("job", _record("queued"))
    memory.persist("job", _record("cancelled"))
    memory.persist("job", _record("running"))
    memory.close()

    stable = StableRecords(tmp_path).recover()
    assert stable.counter == 3
    assert stable.promised == _view(3).epoch
    assert [record.state for record in stable.records] == ["cancelled"]


def test_a_home_without_a_journal_starts_empty(tmp_path: Path) -> None:
    stable = StableRecords(tmp_path).recover()
    assert (stable.counter, stable.promised, stable.records) == (0, None, ())


def test_a_record_of_another_version_is_refused_by_name(tmp_path: Path) -> None:
    journal, _ = Journal.open(tmp_path / JOURNAL_NAME)
    journal.append([{"kind": "view_attempt", "record": {"epoch": "?"}}])
    journal.close()
    with pytest.raises(StateError, match=JOURNAL_NAME):
        StableRecords(tmp_path)


def world(counter: int, lineage: str) -> World:
    return World(
        job=JobId("job-1"),
        generation=Tag(counter, NODE, "nonce"),
        epoch=_view(1).epoch,
        lineage=Lineage(lineage),
        parent=None,
        step=0,
        stamp=Stamp("00"),
        members=(NODE,),
        sources=("init",),
        hosts=("127.0.0.1:20000",),
        shares_now=(((0, 4),),),
        shares=(((0, 4),),),
        rung="start",
        reason="the job starts",
        recoveries=0,
        lost_steps=0,
        exact=True,
        checkpointed=-1,
        manifest=None,
        holders=(),
    )


def test_a_restart_knows_the_newest_world_of_each_job(tmp_path: Path) -> None:
    memory = StableRecords(tmp_path)
    memory.persist("world", world(4, "old"))
    memory.persist("world", world(7, "new"))
    memory.close()

    stable = StableRecords(tmp_path).recover()
    assert stable.worlds == (world(7, "new"),)
    assert stable.counter == 7


def test_attempts_are_remembered_until_a_later_primary_view_is_formed(tmp_path: Path) -> None:
    memory = StableRecords(tmp_path)
    for counter in (1, 2, 4, 6):
        memory.persist("view_attempt", _view(counter))
        memory.persist("primary_attempt", _view(counter))
    memory.persist("primary_formed", _view(4))
    memory.persist("view_formed", replace(_view(5), primary=False))
    memory.close()

    stable = StableRecords(tmp_path).recover()
    assert stable.born == _view(1).epoch
    assert stable.formed == _view(4)
    assert stable.attempts == (_view(6),)
    assert stable.promised == _view(6).epoch


def test_worlds_that_others_formed_are_remembered(tmp_path: Path) -> None:
    memory = StableRecords(tmp_path)
    memory.persist("heard", Heard(JobId("job-1"), Tag(7, NODE, "n")))
    memory.persist("heard", Heard(JobId("job-1"), Tag(5, NODE, "n")))
    memory.persist(
        "primary_formed", replace(_view(8), heard=(Heard(JobId("b"), Tag(3, NODE, "")),))
    )
    memory.close()

    stable = StableRecords(tmp_path).recover()
    assert [(each.job, each.generation.counter) for each in stable.heard] == [
        ("b", 3),
        ("job-1", 7),
    ]
    assert stable.counter == 8


def test_a_lost_journal_is_remembered_until_those_who_know_let_the_node_in(tmp_path: Path) -> None:
    memory = StableRecords(tmp_path)
    before: list[tuple[str, Record]] = [
        ("view_attempt", _view(2)),
        ("job", _record("running")),
        ("world", world(4, "l")),
    ]
    for kind, record in without_promises(before, "damaged"):
        memory.persist(kind, record)
    memory.persist("view_attempt", _view(7))
    memory.persist("primary_attempt", _view(7))
    memory.close()
    stable = StableRecords(tmp_path).recover()
    assert stable.lost and stable.since == (_view(7).epoch,)
    assert (stable.born, stable.worlds, stable.counter) == (_view(7).epoch, (), 7)
    assert [record.state for record in stable.records] == ["running"]

    memory = StableRecords(tmp_path)
    memory.persist("primary_formed", _view(7))
    memory.close()
    stable = StableRecords(tmp_path).recover()
    assert (stable.lost, stable.since, stable.formed) == (False, (), _view(7))


def test_what_no_longer_counts_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "COMPACT_AT_BYTES", 5_000)
    memory = StableRecords(tmp_path)
    for counter in range(0, 500, 25):
        memory.persist_all([("view_formed", _view(counter + n)) for n in range(25)])
        memory.persist("job", _record("queued"))
    memory.close()
    assert (tmp_path / JOURNAL_NAME).stat().st_size < 10_000
    stable = StableRecords(tmp_path).recover()
    assert stable.counter == 499 and len(stable.records) == 1


def _failed(number: int) -> JobRecord:
    """A job that failed, with as long a reason as there are."""
    job = JobId(f"job-{number}")
    return JobRecord(job, number, {"job": {"name": "job"}}, "archive", "failed", "x" * 3900)


def test_many_jobs_are_no_reason_to_refuse_one_more_or_to_forget_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All nodes have the same jobs: they would end together, and at each start again."""
    monkeypatch.setattr(journal, "COMPACT_AT_BYTES", 40_000)
    monkeypatch.setattr(journal, "FRAME_BYTES", 20_000)
    memory = StableRecords(tmp_path)
    for number in range(40):
        memory.persist("job", _failed(number))
    memory.persist("job", replace(_failed(7), forgotten=True).bounded())
    memory.close()

    memory = StableRecords(tmp_path)
    records = memory.recover().records
    assert len(records) == 40
    assert [record.id for record in records if record.forgotten] == ["job-7"]
    memory.persist_all([("job", replace(each, forgotten=True).bounded()) for each in records])
    memory.persist_all([("view_formed", _view(counter)) for counter in range(2000)])
    memory.close()
    assert (tmp_path / JOURNAL_NAME).stat().st_size < 20_000
    assert all(record.forgotten for record in StableRecords(tmp_path).recover().records)


def test_what_counts_survives_compaction() -> None:
    whole, short = Recall(), Recall()
    for counter in (1, 2, 3):
        whole.absorb("view_attempt", _view(counter))
        whole.absorb("primary_attempt", _view(counter))
    whole.absorb("heard", Heard(JobId("job-1"), Tag(7, NODE, "n")))
    whole.absorb("primary_formed", _view(2))
    for kind, record in whole.latest:
        short.absorb(kind, record)
    assert short.stable == whole.stable
    assert short.stable.born == _view(1).epoch
