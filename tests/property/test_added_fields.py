"""Records that nodes merge and pass on get new fields, build by build. A build that doesn't know
one keeps the record, and takes it for the same until the field says something."""

from __future__ import annotations

import dataclasses
import hashlib
from functools import cache
from typing import Any, get_type_hints

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticd.core.jobs.ended import digest
from elasticd.core.recall import KINDS
from elasticd.core.words.codec import beyond, from_plain, to_plain
from elasticd.core.words.records import JobRecord, NodeRecord
from elasticd.recovery.fitness import Unfit
from elasticd.recovery.unknown import NOTHING, added, added_to
from tests.unit.core.words.drawn import values

KEPT: tuple[Any, ...] = (JobRecord, Unfit, NodeRecord)
"""All records that keep what they don't know."""


@cache
def _build(kind: Any, leap: int) -> Any:
    """The record of an earlier build, which lacks all that was added, or of a later one that has
    one field more. ``leap`` is -1 or 1."""
    hints = get_type_hints(kind, include_extras=True)
    made: list[Any] = []
    for each in dataclasses.fields(kind):
        if leap < 0 and each.name in added_to(kind):
            continue
        entry: Any = _build(Unfit, leap) if each.name == "unfit" else None
        hint = hints[each.name] if entry is None else tuple.__class_getitem__((entry, ...))
        made.append((each.name, hint, _again(each)))
    if leap > 0:
        made.insert(len(made) - 1, ("later", tuple[int, ...], added(())))
    return dataclasses.make_dataclass(kind.__name__, made, frozen=True)


def _again(each: Any) -> Any:
    return dataclasses.field(
        default=each.default, default_factory=each.default_factory, repr=each.repr,
        metadata=each.metadata,
    )  # fmt: skip


def _read(kind: Any, record: Any) -> Any:
    """What another build makes of a record, from the wire or a journal."""
    return from_plain(kind, msgpack.unpackb(msgpack.packb(to_plain(record))))


def _first_digest(record: Any) -> int:
    """As builds had it that knew no added field."""
    text = repr(record)
    unknown = [record.unknown.fields, *(entry.unknown.fields for entry in record.unfit)]
    if any(unknown):
        text += repr(unknown)
    said = text.encode(errors="surrogatepass")
    return int.from_bytes(hashlib.blake2b(said, digest_size=6).digest())


def _plainly(kind: Any) -> st.SearchStrategy[Any]:
    return values(kind).map(lambda record: _read(kind, record))


def test_these_are_all() -> None:
    keepers = {kind for kind in KINDS.values() if _keeps(kind)}
    assert keepers == {JobRecord, NodeRecord}
    inside = {each for kind in keepers for hint in get_type_hints(kind).values()
              for each in getattr(hint, "__args__", ()) if _keeps(each)}  # fmt: skip
    assert {*keepers, *inside} == {*KEPT}


def _keeps(kind: Any) -> bool:
    found = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
    return any(each.default is NOTHING for each in found)


@pytest.mark.parametrize("kind", KEPT)
@pytest.mark.parametrize("leap", [-1, 1])
@given(data=st.data())
def test_what_says_nothing_new_is_written_alike(kind: Any, leap: int, data: st.DataObject) -> None:
    """``leap``: the other build is an earlier or a later one."""
    other = _build(kind, leap)
    theirs = _bare(data.draw(_plainly(other)))
    assert to_plain(_read(kind, theirs)) == to_plain(theirs)
    assert not added_to(kind).keys() & to_plain(_read(_build(kind, -1), theirs)).keys()


def _bare(record: Any) -> Any:
    """With nothing in what was added."""
    kind: type = type(record)
    usual: dict[str, Any] = dict(added_to(kind))
    if hasattr(record, "unfit"):
        usual["unfit"] = tuple(map(_bare, record.unfit))
    return dataclasses.replace(record, **usual)


@given(_plainly(JobRecord))
def test_the_build_before_has_the_same_digest(record: JobRecord) -> None:
    """Else nodes of two versions would tell each other every job of years at each start."""
    assert _first_digest(_read(_build(JobRecord, -1), record)) == digest(record)


@given(_plainly(_build(JobRecord, 1)))
def test_the_build_to_come_has_the_same_digest(theirs: Any) -> None:
    assert digest(_read(JobRecord, theirs)) == digest(theirs)


@pytest.mark.parametrize("name", sorted(added_to(JobRecord)))
@given(record=_plainly(JobRecord), data=st.data())
def test_what_was_added_counts(name: str, record: JobRecord, data: st.DataObject) -> None:
    """Also against a record that says nothing: it never goes back to that."""
    plain = dataclasses.replace(_bare(record), spec={"job": {}})
    drawn = data.draw(values(get_type_hints(JobRecord, include_extras=True)[name]))
    says = plain.merged(dataclasses.replace(plain, **{name: drawn}))
    if getattr(says, name) != getattr(plain, name):
        assert digest(plain) != digest(says)
        assert dict(beyond(says))[name] == to_plain(getattr(says, name))
        assert getattr(plain.merged(says), name) == getattr(says, name)
