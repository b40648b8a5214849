"""A checkpoint goes for a newer one at each moment of whatever else is done with the store."""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from elasticd.checkpoints.layout import final_name
from elasticd.checkpoints.manifest import Manifest, Shard, Stored
from elasticd.checkpoints.store import LocalStore
from elasticd.shell.storage.health import examine
from elasticd.types import NO_TAG, JobId, Lineage, NodeId, Stamp
from tests.unit.moments import Moment

JOB, ME = JobId("job-1"), NodeId("me")
BYTES = b"four"
SHARD = Shard(0, len(BYTES), hashlib.blake2b(BYTES, digest_size=32).hexdigest())


def stamp_of(step: int) -> Stamp:
    return Stamp(f"{step:032x}"[::-1])


NEWER = final_name(20, stamp_of(20))


def manifest_of(step: int) -> Manifest:
    return Manifest(
        *(JOB, Lineage("line"), None, step, stamp_of(step), NO_TAG, step * 8, 8, 1),
        *((SHARD,), ((ME,),), "00", float(step)),
    )


def fill(store: LocalStore, step: int) -> None:
    store.put_shard(JOB, step, stamp_of(step), 0, 1, [BYTES], SHARD.digest)
    store.commit(manifest_of(step))


@pytest.fixture
def at_each(tmp_path: Path) -> Callable[[Callable[[LocalStore], object]], list[object]]:
    """What a function says of a store with step 10, for which step 20 comes meanwhile."""
    numbers = itertools.count()

    def run(work: Callable[[LocalStore], object]) -> list[object]:
        said = []
        for at in itertools.count():
            here = tmp_path / str(next(numbers))
            store, aside = LocalStore(here / "checkpoints", ME), LocalStore(here / "aside", ME)
            for each in (store, aside):
                each.root.mkdir(parents=True)
            fill(store, 10)
            fill(aside, 20)

            def comes(store: LocalStore = store, aside: LocalStore = aside) -> None:
                os.rename(aside.folder(JOB) / NEWER, store.folder(JOB) / NEWER)
                store.remove(JOB, 10, stamp_of(10))

            moment = Moment(at, comes)
            with moment.counted():
                said.append(work(store))
            if not moment.came:
                return said
        raise AssertionError

    return run


OLD, NEW = (Stored(manifest_of(step), (0,)) for step in (10, 20))


def test_there_is_always_one_and_it_is_whole(at_each: Callable[..., list[object]]) -> None:
    seen = at_each(lambda store: store.stored(JOB))
    assert all(one in ([OLD], [NEW], [OLD, NEW]) for one in seen)
    assert [OLD] in seen and [NEW] in seen


def test_none_is_called_damaged(at_each: Callable[..., list[object]]) -> None:
    seen = at_each(lambda store: store.sweep(JOB))
    assert all(one == LocalStore(Path()).sweep(JobId("none")) for one in seen)


def test_nor_by_doctor(at_each: Callable[..., list[object]]) -> None:
    seen = at_each(lambda store: examine(store.root.parent, running=True, start=""))
    assert all("checkpoints" not in str(found) for found in seen)


def test_what_goes_anyway_can_be_removed(at_each: Callable[..., list[object]]) -> None:
    at_each(lambda store: store.remove(JOB, 10, stamp_of(10)))


def test_none_can_be_asked_for(at_each: Callable[..., list[object]]) -> None:
    seen = at_each(lambda store: store.held(JOB, 10, stamp_of(10)))
    assert {(), (0,)} == set(seen)
    at_each(lambda store: store.verify(JOB, 10, stamp_of(10)))
    at_each(lambda store: store.is_right(JOB, 10, stamp_of(10), 0, 1, SHARD.digest))


def test_nor_is_anything_there_of_a_job_that_is_forgotten(tmp_path: Path) -> None:
    for at in itertools.count():
        store = LocalStore(tmp_path / str(at), ME)
        store.root.mkdir()
        fill(store, 10)

        def forgotten(store: LocalStore = store) -> None:
            store.remove(JOB, 10, stamp_of(10))
            store.folder(JOB).rmdir()

        moment = Moment(at, forgotten)
        with moment.counted():
            found = store.jobs(), store.stored(JOB), store.sweep().problems
        assert found[1] in ([], [OLD]) and not found[2]
        if not moment.came:
            return
