"""A store whose disk goes away makes nothing in the place where it was."""

from __future__ import annotations

import shutil
from pathlib import Path

import mlx.core as mx
import pytest

from elasticd.checkpoints.codec import write_shard
from elasticd.checkpoints.store import LocalStore
from elasticd.errors import DiskError
from tests.unit.checkpoints.test_local_store import JOB, ME, commit, manifest_of, put

SAID = "is gone; mount the disk that it is on, or make the folder"


def test_a_store_makes_no_root(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "disk/home/checkpoints", ME)
    with pytest.raises(DiskError, match=f"{store.root}: {SAID}"):
        put(store, 1, 0)
    with pytest.raises(DiskError, match=SAID):
        store.commit(manifest_of(1))
    assert list(tmp_path.iterdir()) == []


def test_one_that_is_there_again_takes_what_comes(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "checkpoints", ME)
    store.root.mkdir()
    commit(store, 1)
    shutil.rmtree(store.root)
    with pytest.raises(DiskError, match=SAID):
        put(store, 2, 0)
    store.root.mkdir()
    commit(store, 2)
    assert [made.step for made in store.manifests(JOB)] == [2]


def test_nor_does_a_trainer(tmp_path: Path) -> None:
    root = tmp_path / "home/checkpoints"
    path = root / JOB / "00000005-aa.partial" / "shard"
    with pytest.raises(DiskError, match=SAID):
        write_shard(path, {"a": mx.array([1.0])}, {}, root=root)
    assert list(tmp_path.iterdir()) == []
    root.mkdir(parents=True)
    write_shard(path, {"a": mx.array([1.0])}, {}, root=root)
    assert path.is_file()
