"""What is damaged or in the way is laid aside, and takes the place of nothing that lies there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from elasticd.checkpoints import layout
from elasticd.checkpoints.manifest import Shard, Stored
from elasticd.checkpoints.store import LocalStore
from elasticd.errors import StateError
from elasticd.types import Lineage, Point
from tests.unit.checkpoints.test_local_store import (
    COUNT,
    JOB,
    ME,
    commit,
    content,
    digest_of,
    manifest_of,
    path_of,
    put,
    stamp_of,
)


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path, ME)


def test_what_nobody_can_complete_is_put_aside_for_a_line_that_left_before_it(
    store: LocalStore, tmp_path: Path
) -> None:
    commit(store, 10)
    old, whole = path_of(tmp_path, 10, 0).parent, b"other"
    written = old.with_name(layout.partial_name(10, stamp_of(10))) / layout.shard_name(0, 1)
    written.parent.mkdir()
    written.write_bytes(whole)
    shards = (Shard(0, len(whole), digest_of(whole)),)
    new = replace(
        manifest_of(10), lineage=Lineage("next"), count=1, shards=shards, holders=((ME,),)
    )
    here = Point(Lineage("line"), 10, stamp_of(10))
    for parent in (None, here, replace(here, step=9, lineage=Lineage("third"))):
        with pytest.raises(StateError, match="another state is committed there"):
            store.commit(replace(new, parent=parent))
    new = replace(new, parent=replace(here, step=9))
    store.commit(new)
    assert store.stored(JOB) == [Stored(new, (0,))]
    aside = old.with_name(old.name + layout.DAMAGED)
    assert (aside / layout.shard_name(0, COUNT)).read_bytes() == content(10, 0)
    assert store.sweep().removed == () and aside.is_dir()
    # The next of that name lies beside it: what was put aside is not written over either.
    for n, name in enumerate(layout.aside_names(old.name)[1:]):
        written.parent.mkdir()
        written.write_bytes(whole)
        parent = Point(new.lineage, 9, stamp_of(10))
        new = replace(new, lineage=Lineage(f"after-{n}"), parent=parent)
        store.commit(new)
        assert store.stored(JOB) == [Stored(new, (0,))]
        assert (old.with_name(name) / layout.shard_name(0, 1)).read_bytes() == whole
    assert (aside / layout.shard_name(0, COUNT)).read_bytes() == content(10, 0)
    # There is an end to that.
    last = replace(new, lineage=Lineage("last"), parent=Point(new.lineage, 9, stamp_of(10)))
    with pytest.raises(StateError, match="another state is committed there"):
        store.commit(last)
    assert store.stored(JOB) == [Stored(new, (0,))]


def test_a_rotten_shard_that_is_set_aside_is_held_no_more(
    store: LocalStore, tmp_path: Path
) -> None:
    commit(store, 10)
    path = path_of(tmp_path, 10, 0)
    path.write_bytes(b"x" + content(10, 0)[1:])
    (problem,) = store.verify(JOB, 10, stamp_of(10))
    assert problem.rotten
    store.set_aside(problem)
    assert 0 not in store.held(JOB, 10, stamp_of(10))
    assert path.with_name(path.name + layout.DAMAGED).read_bytes()[:1] == b"x"
    put(store, 10, 0)
    assert store.verify(JOB, 10, stamp_of(10)) == []
    # It rots again, and again: what lies aside stays, and there is an end to it.
    for times in range(2, 13):
        path.write_bytes(b"%x" % times + content(10, 0)[1:])
        store.set_aside(*store.verify(JOB, 10, stamp_of(10)))
        assert 0 not in store.held(JOB, 10, stamp_of(10))
        put(store, 10, 0)
    found = [path.with_name(name).read_bytes()[:1] for name in layout.aside_names(path.name)]
    assert found == [b"x", *(b"%x" % times for times in range(2, 10))]
