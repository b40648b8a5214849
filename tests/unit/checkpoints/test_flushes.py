"""How often a store, and an export, wait for the medium on a Mac, by a fake of fcntl(2) that
counts."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from elasticd.checkpoints import export
from elasticd.checkpoints.disk import LocalDisk
from elasticd.checkpoints.store import LocalStore
from tests.unit.checkpoints.test_export import shards
from tests.unit.checkpoints.test_local_store import JOB, ME, manifest_of, put, stamp_of

FULL, BARRIER = 51, 85


class Calls:
    """Of fcntl(2): which, and of what."""

    def __init__(self) -> None:
        self.made: list[tuple[int, str]] = []

    def __call__(self, fd: int, wanted: int) -> int:
        self.made.append((wanted, "folder" if stat.S_ISDIR(os.fstat(fd).st_mode) else "file"))
        return 0


@pytest.mark.parametrize("here", ["darwin", "linux"])
def test_a_shard_and_a_commit_take_one_full_flush_each_on_a_mac(tmp_path: Path, here: str) -> None:
    """As the last thing, of the folder: that flush takes what barriers have put in order along."""
    calls = Calls()
    store = LocalStore(tmp_path, ME, disk=LocalDisk(here, calls))
    put(store, 1, 0)
    calls.made.clear()  # folders were made
    put(store, 1, 0)
    shard = [(BARRIER, "file"), (FULL, "folder")]
    assert calls.made == (shard if here == "darwin" else [])
    calls.made.clear()
    store.commit(manifest_of(1))
    whole = [(BARRIER, "file"), (BARRIER, "folder"), (FULL, "folder")]
    assert calls.made == (whole if here == "darwin" else [])
    assert store.held(JOB, 1, stamp_of(1)) == (0,)


@pytest.mark.parametrize("shard_bytes, files", [(None, 2), (48, 4)])
def test_an_export_takes_one_full_flush_behind_all_of_its_files(
    tmp_path: Path, shard_bytes: int | None, files: int
) -> None:
    calls, out = Calls(), tmp_path / "out"
    if shard_bytes is None:
        out.mkdir()
    with export.CheckpointReader.open(shards(tmp_path)) as source:
        disk = LocalDisk("darwin", calls)
        done = export.export(source, out, optimizer=True, shard_bytes=shard_bytes, disk=disk)
    assert len(done.files) == files
    assert calls.made.count((BARRIER, "file")) == files
    assert [made for made in calls.made if made[0] == FULL] == [(FULL, "folder")]
    assert calls.made[-1] == (FULL, "folder")


def test_files_of_an_export_that_links_lead_apart_are_flushed_each(tmp_path: Path) -> None:
    """They may lie on two disks, and a flush is of one."""
    calls, other = Calls(), tmp_path / "other"
    other.mkdir()
    (other / "state").write_bytes(b"")
    (tmp_path / "model.optimizer.safetensors").symlink_to(other / "state")
    with export.CheckpointReader.open(shards(tmp_path)) as source:
        export.export(source, tmp_path, optimizer=True, disk=LocalDisk("darwin", calls))
    assert calls.made == [(BARRIER, "file"), (FULL, "folder")] * 2
