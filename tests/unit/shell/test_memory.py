"""What the control plane remembers across restarts."""

from __future__ import annotations

from pathlib import Path

import pytest

from elasticd.core.messages import JobRecord, View, World
from elasticd.errors import StateError
from elasticd.shell.journal import Journal
from elasticd.shell.memory import JOURNAL_NAME, Memory
from elasticd.types import JobId, Lineage, NodeId, Stamp, Tag

NODE = NodeId("node-0")


def _view(counter: int) -> View:
    return View(Tag(counter, NODE, f"nonce-{counter}"), (NODE,))


def _record(state: str) -> JobRecord:
    return JobRecord(JobId("job-1"), 1, {"job": {"name": "job"}}, "archive", state)  # type: ignore[arg-type]


def test_a_restart_finds_promise_counter_and_jobs(tmp_path: Path) -> None:
    memory = Memory(tmp_path)
    memory.persist("view_attempt", _view(3))
    memory.persist("view_formed", _view(2))
    memory.persist("job", _record("queued"))
    memory.persist("job", _record("cancelled"))
    memory.persist("job", _record("running"))
    memory.close()

    stable = Memory(tmp_path).stable
    assert stable.counter == 3
    assert stable.promised == _view(3).epoch
    assert [record.state for record in stable.records] == ["cancelled"]


def test_a_home_without_a_journal_starts_empty(tmp_path: Path) -> None:
    stable = Memory(tmp_path).stable
    assert (stable.counter, stable.promised, stable.records) == (0, None, ())


def test_a_record_of_another_version_is_refused_by_name(tmp_path: Path) -> None:
    journal, _ = Journal.open(tmp_path / JOURNAL_NAME)
    journal.append([{"kind": "view_attempt", "record": {"epoch": "?"}}])
    journal.close()
    with pytest.raises(StateError, match=JOURNAL_NAME):
        Memory(tmp_path)


def _world(counter: int, lineage: str) -> World:
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
    memory = Memory(tmp_path)
    memory.persist("world", _world(4, "old"))
    memory.persist("world", _world(7, "new"))
    memory.close()

    stable = Memory(tmp_path).stable
    assert stable.worlds == (_world(7, "new"),)
    assert stable.counter == 7
