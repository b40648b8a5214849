"""A folder on a disk of its own, and the mount point that is left where that is away."""

from __future__ import annotations

import shutil
from pathlib import Path

import mlx.core as mx
import pytest

from elasticd.checkpoints.apart import SIGN, explained, is_another, note_of
from elasticd.checkpoints.codec import write_shard
from elasticd.checkpoints.store import LocalStore
from elasticd.errors import DiskError
from tests.unit.checkpoints.test_local_store import JOB, ME, commit, manifest_of, put


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """That of a home's checkpoints, on a disk."""
    disk, root = tmp_path / "disk", tmp_path / "home/checkpoints"
    disk.mkdir()
    root.parent.mkdir()
    root.symlink_to(disk)
    for path in (disk / SIGN, note_of(root)):
        path.write_text("one\n")
    return root


def away(root: Path) -> Path:
    """The disk goes; its mount point stays."""
    disk = root.resolve()
    disk.rename(disk.with_name("unmounted"))
    disk.mkdir()
    return disk


def test_nothing_is_written_to_the_mount_point_of_a_disk_that_is_away(root: Path) -> None:
    store = LocalStore(root, ME)
    commit(store, 1)
    put(store, 2, 0)
    place = away(root)
    with pytest.raises(DiskError) as refused:
        put(store, 3, 0)
    assert str(refused.value) == f"{root} {'. '.join(explained(root))}"
    assert f"rm {note_of(root)}" in str(refused.value)
    with pytest.raises(DiskError, match="another folder than it was"):
        store.commit(manifest_of(2))
    shard = root / JOB / "00000005-aa.partial" / "shard"
    with pytest.raises(DiskError, match="another folder than it was"):
        write_shard(shard, {"a": mx.array([1.0])}, {}, root=root)
    assert list(place.iterdir()) == [] and store.manifests(JOB) == []
    place.rmdir()
    place.with_name("unmounted").rename(place)
    store.commit(manifest_of(2))
    assert [made.step for made in store.manifests(JOB)] == [1, 2]


def test_a_folder_that_is_there_before_is_no_reason_to_write_to_it(root: Path) -> None:
    """As where checkpoints came to lie below a mount point once."""
    place = away(root)
    shutil.copytree(place.with_name("unmounted"), place, dirs_exist_ok=True)
    (place / SIGN).write_text("other\n")
    (place / JOB).mkdir()
    with pytest.raises(DiskError, match="another folder than it was"):
        put(LocalStore(root, ME), 1, 0)


def test_who_removes_the_note_says_that_the_folder_counts(root: Path) -> None:
    away(root)
    assert is_another(root)
    note_of(root).unlink()
    assert not is_another(root)
    commit(LocalStore(root, ME), 1)


def test_a_sign_that_the_disk_does_not_read_is_told(root: Path) -> None:
    (root / SIGN).unlink()
    (root / SIGN).mkdir()
    with pytest.raises(DiskError, match=f"{root}/{SIGN}"):
        put(LocalStore(root, ME), 1, 0)
