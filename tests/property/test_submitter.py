"""Who has submitted a job is kept by every node, whatever else they say of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticd.core.words.codec import from_plain, to_plain
from elasticd.core.words.records import JobRecord
from elasticd.errors import ProtocolError
from elasticd.types import MOST_ACCOUNT_LETTERS, JobId, NodeId

SPEC = {"job": {"name": "a"}}
RECORDS = st.builds(
    JobRecord, id=st.just(JobId("a-1-abcd")), number=st.just(1), spec=st.just(SPEC),
    archive=st.just("d"), state=st.sampled_from(["queued", "running", "finished", "cancelled"]),
    turn=st.integers(0, 2), step=st.integers(0, 2), forgotten=st.booleans(),
    passed=st.sampled_from([(), ("A",), ("A", "B")]), submitter=st.sampled_from(["", "anna", "bo"]),
    submitted_on=st.sampled_from([NodeId(""), NodeId("n0"), NodeId("n1")]),
    recipe=st.sampled_from(["", "{}"]),
)  # fmt: skip


def said(record: JobRecord) -> tuple[object, ...]:
    return record.submitter, record.submitted_on, record.passed, record.recipe


@given(st.lists(RECORDS, min_size=2, max_size=4))
def test_all_nodes_come_to_the_same_and_none_forgets_it(records: list[JobRecord]) -> None:
    found = set[tuple[object, ...]]()
    for order in (records, records[::-1], sorted(records, key=repr)):
        merged = order[0]
        for each in order[1:]:
            merged = merged.merged(each)
        found.add(said(merged))
        for each in records:
            assert said(merged.merged(each)) == said(merged)
    assert len(found) == 1
    assert found == {
        (
            *max((each.submitter, each.submitted_on) for each in records),
            max(each.passed for each in records),
            max(each.recipe for each in records),
        )
    }


@pytest.mark.parametrize("name", ["a" * (MOST_ACCOUNT_LETTERS + 1), "a\x1b[31m", "a\nb", "\u202e"])
def test_a_peer_names_nobody_as_no_account_is_called(name: str) -> None:
    record = JobRecord(JobId("a-1-abcd"), 1, SPEC, "d", "queued", submitter="anna")
    assert from_plain(JobRecord, to_plain(record)) == record
    with pytest.raises(ProtocolError, match="submitter"):
        from_plain(JobRecord, {**to_plain(record), "submitter": name})
