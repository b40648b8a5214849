"""A node of the version before takes nothing from a record on its way: it keeps what it can't read.

Each test says what a later version would: a record with fields that nobody here knows.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from itertools import permutations
from pathlib import Path
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticd.core.jobs.ended import digest
from elasticd.core.recall import KINDS
from elasticd.core.words.codec import from_plain, to_plain
from elasticd.core.words.messages import decode, encode
from elasticd.core.words.records import JobRecord, NodeRecord
from elasticd.core.words.tables import Jobs, Nodes
from elasticd.errors import ProtocolError
from elasticd.recovery.fitness import Unfit
from elasticd.recovery.unknown import Unknown
from elasticd.shell.storage.records import StableRecords, plain, read
from elasticd.types import JobId, NodeId
from tests.unit.core.jobs.test_job_records import records
from tests.unit.core.words.drawn import PLAIN, values

KEPT = [JobRecord, NodeRecord, Unfit]
LATER = st.dictionaries(st.text(max_size=6).map("later_{}".format), PLAIN, min_size=1)
UNKNOWN = values(Unknown)
SOME = Unknown.of({"later": 1})


def job(**fields: Any) -> JobRecord:
    return JobRecord(
        JobId("job-1-abcd"), 1, {"job": {"name": "job"}}, "digest", "running", **fields
    )


def packed(value: Any) -> bytes:
    found: bytes = msgpack.packb(value, unicode_errors="surrogatepass")
    return found


@pytest.mark.parametrize("kind", KEPT)
@given(data=st.data())
def test_what_is_unknown_is_kept_byte_for_byte(kind: type, data: st.DataObject) -> None:
    later = data.draw(LATER)
    said = {**to_plain(data.draw(values(kind))), **later}
    passed_on = to_plain(from_plain(kind, said))
    assert {name: packed(passed_on[name]) for name in later} == {
        name: packed(value) for name, value in later.items()
    }
    assert passed_on.keys() == said.keys()
    assert from_plain(kind, passed_on) == from_plain(kind, said)


def test_it_goes_through_every_message_and_journal_that_has_such_a_record(tmp_path: Path) -> None:
    unfit = (Unfit(NodeId("n"), 1, "why", unknown=SOME),)
    told, node = job(unfit=unfit, unknown=SOME), NodeRecord(NodeId("n"), 1, unknown=SOME)
    assert decode(encode(Jobs((told,)))) == Jobs((told,))
    assert decode(encode(Nodes((node,)))) == Nodes((node,))
    for kind, record in (("job", told), ("node", node)):
        assert KINDS[kind] is type(record)
        assert read(plain(kind, record)) == (kind, record)
    journal = StableRecords(tmp_path)
    journal.persist_all([("job", told), ("node", node)])
    journal.close()
    found = StableRecords(tmp_path)
    assert (found.recover().records, found.recover().nodes) == ((told,), (node,))
    found.close()


def test_a_name_that_is_no_text_is_no_field() -> None:
    with pytest.raises(ProtocolError, match="expected str, got bytes"):
        from_plain(NodeRecord, {"node": "n", b"later": 1})


@given(records, records, UNKNOWN, UNKNOWN)
def test_merging_loses_no_unknown_field(
    one: JobRecord, other: JobRecord, first: Unknown, second: Unknown
) -> None:
    one, other = replace(one, unknown=first), replace(other, unknown=second)
    merged = one.merged(other)
    names = {name for each in (one, other) for name, _ in each.unknown.fields}
    assert {name for name, _ in merged.unknown.fields} == names
    assert merged == other.merged(one)
    assert merged.merged(one) == merged == merged.merged(other)


@given(st.lists(st.tuples(st.integers(0, 2), UNKNOWN), min_size=1, max_size=4))
def test_nodes_that_go_on_telling_each_other_end_with_the_same(news: list[Any]) -> None:
    tables = [job(turn=turn, unknown=unknown) for turn, unknown in news]
    for _ in tables:
        merged = [reduce(JobRecord.merged, order) for order in permutations(tables)]
        tables = merged[: len(tables)]
    assert all(each == reduce(JobRecord.merged, merged) for each in merged)


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        (job(turn=1), job(turn=2)),
        (NodeRecord(NodeId("n"), 1), NodeRecord(NodeId("n"), 2)),
    ],
)
def test_of_two_that_say_something_the_later_record_counts(older: Any, newer: Any) -> None:
    older = replace(older, unknown=Unknown.of({"both": "z", "old": 1}))
    newer = replace(newer, unknown=Unknown.of({"both": "a", "new": 2}))
    for merged in (older.merged(newer), newer.merged(older)):
        assert merged.unknown == Unknown.of({"both": "a", "old": 1, "new": 2})


def test_ended_jobs_that_differ_in_an_unknown_field_have_other_digests() -> None:
    ended = job(unfit=(Unfit(NodeId("n"), 1, "why"),))
    odd = replace(ended, unfit=(replace(ended.unfit[0], unknown=SOME),))
    assert len({digest(each) for each in (ended, replace(ended, unknown=SOME), odd)}) == 3
