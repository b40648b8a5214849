"""However nodes exchange the records of jobs, they end with the same ones."""

from __future__ import annotations

from dataclasses import fields, replace
from functools import reduce
from itertools import permutations
from typing import Any, get_args, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticd.core.words.records import JobRecord, JobState
from elasticd.recovery import fitness
from elasticd.types import JobId, NodeId, Tag
from tests.unit.core.words.drawn import values

STATES = get_args(JobState)


def record(state: Any, **fields: Any) -> JobRecord:
    return JobRecord(JobId("job-1-abcd"), 1, {"job": {}}, "digest", state, **fields)


# Of one job all nodes have the same number, spec and archive: they are part of its first record.
records = st.builds(
    record,
    st.sampled_from(STATES),
    reason=st.none() | st.sampled_from(["", "a", "b"]),
    step=st.integers(0, 3),
    digest=st.none() | st.sampled_from(["", "00", "01"]),
    relief=st.integers(0, 2),
    relief_turn=st.integers(0, 2),
    turn=st.integers(0, 2),
    intent=st.integers(0, 3),
    rested=st.sampled_from(["", "1@n"]),
    inexact=st.sampled_from(["", "a", "b"]),
    forgotten=st.booleans(),
    account=st.sampled_from([{}, {"loss": 1.0}, {"loss": 2.0}]),
    left=st.sampled_from([(), (("a", 1),), (("a", 2), ("b", 1))]),
    ran=st.sampled_from([(), (("a", Tag(1, NodeId("n"), "x")),)]),
    on_cpu=st.sampled_from([(), (("a", Tag(1, NodeId("n"), "x"), True),)]),
    origin=st.sampled_from([(), (("mlx", "1"),), (("mlx", "2"),)]),
)
APART = {"id", "number", "spec", "archive", "left", "ran", "on_cpu", "origin"}
"""Fields that are the same everywhere, or merge by themselves."""


@pytest.mark.parametrize("name", sorted({each.name for each in fields(JobRecord)} - APART))
@given(data=st.data())
def test_records_that_differ_in_one_field_merge_to_one(name: str, data: st.DataObject) -> None:
    """Whatever fields are added: else each side would keep its own for ever."""
    drawn = values(get_type_hints(JobRecord)[name])
    if name == "unfit":  # one entry a node, as they are in any record
        drawn = drawn.map(lambda entries: fitness.merged(entries, ()))
    mine, theirs = (replace(record("running"), **{name: data.draw(drawn)}) for _ in range(2))
    assert mine.merged(theirs) == theirs.merged(mine)


@given(records, records)
def test_merging_is_commutative(one: JobRecord, other: JobRecord) -> None:
    assert one.merged(other) == other.merged(one)


@given(records, records, records)
def test_merging_is_associative(a: JobRecord, b: JobRecord, c: JobRecord) -> None:
    assert a.merged(b).merged(c) == a.merged(b.merged(c))


@given(records, records)
def test_merging_is_idempotent(one: JobRecord, other: JobRecord) -> None:
    assert one.merged(one) == one
    assert one.merged(other).merged(other) == one.merged(other)


@given(st.lists(records, min_size=1, max_size=4))
def test_the_order_of_news_does_not_matter(news: list[JobRecord]) -> None:
    ends = [reduce(JobRecord.merged, order) for order in permutations(news)]
    assert all(end == ends[0] for end in ends)


def test_who_knows_more_of_an_ended_job_is_believed() -> None:
    """The leader may leave with its record half told: the next one has seen nothing of the job."""
    full = record("finished", step=20, account={"loss": 1.5, "exact": True})
    late = record("finished", step=20, account={"loss": None, "exact": True})
    assert full.merged(late) == late.merged(full) == full


@given(records)
def test_a_cancel_wins(other: JobRecord) -> None:
    cancelled = record("cancelled", reason="cancelled by the user")
    assert other.merged(cancelled).state == "cancelled"


@pytest.mark.parametrize("state", STATES)
def test_what_has_ended_does_not_run_again(state: Any) -> None:
    ended = record("finished", step=20, digest="ab")
    merged = ended.merged(record(state))
    assert merged.ended
    assert merged.state == ("cancelled" if state == "cancelled" else "finished")
