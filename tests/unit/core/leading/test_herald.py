"""What people are told of who came and who left."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elasticd.core.context import Context
from elasticd.core.leading.herald import Herald
from elasticd.core.words.records import JobRecord, View
from elasticd.types import NodeId, Tag
from tests.unit.core.leading.bench import EPOCH, JOB, ME, A, B, spec_of
from tests.unit.core.leading.outbox import told


@pytest.fixture
def herald() -> Herald:
    return Herald(Context(ME, lambda: "0000", now=50.0))


def names(herald: Herald, kind: str) -> list[NodeId]:
    return [event.fields["culprit"] for event in told(herald.ctx, kind)]


def test_the_first_view_names_everyone_the_leader_as_well(herald: Herald) -> None:
    herald.announce(View(EPOCH, (A, B, ME)))
    assert names(herald, "node_joined") == [A, B, ME] and names(herald, "node_lost") == []


def test_a_later_view_names_who_came_and_who_left(herald: Herald) -> None:
    herald.note(View(EPOCH, (A, ME)))
    herald.ctx.departures.note(A, 48.0, "silent for 2.0 s")
    herald.announce(View(Tag(5, ME, "w"), (B, ME)))
    assert (names(herald, "node_joined"), names(herald, "node_lost")) == ([B], [A])
    (lost,) = told(herald.ctx, "node_lost")
    assert lost.reason == "a left the view: silent for 2.0 s" and lost.fields["epoch"] == 5


def test_who_comes_back_to_the_others_is_not_told_to_have_joined_itself(herald: Herald) -> None:
    """It was alone in a view of others, and leads again."""
    herald.note(View(EPOCH, (A, B)))
    herald.announce(View(Tag(5, ME, "w"), (A, B, ME)))
    assert names(herald, "node_joined") == []


def test_between_two_views_the_last_one_is_remembered(herald: Herald) -> None:
    herald.note(View(EPOCH, (A, ME)))
    herald.note(None)
    herald.announce(View(Tag(5, ME, "w"), (A, ME)))
    assert names(herald, "node_joined") == [] and names(herald, "node_lost") == []


def test_only_what_would_run_is_told_to_be_parked_and_only_where_nothing_may(
    herald: Herald,
) -> None:
    running = JobRecord(JOB, 1, spec_of().to_dict(), "digest", "running")
    view = View(EPOCH, (ME,), primary=False, why="2 are needed")
    herald.tell_of_parking(view, [running, replace(running, state="queued")])
    assert [event.reason for event in told(herald.ctx, "job_parked")] == ["2 are needed"]
    herald.tell_of_parking(replace(view, primary=True), [running])
    assert len(told(herald.ctx, "job_parked")) == 1
