"""How often a store waits for the medium on a Mac, by a fake of fcntl(2) that counts."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from elasticd.checkpoints.disk import LocalDisk
from elasticd.checkpoints.store import LocalStore
from tests.unit.checkpoints.test_local_store import JOB, ME, manifest_of, put, stamp_of


@pytest.mark.parametrize("here", ["darwin", "linux"])
def test_a_shard_and_a_commit_take_one_full_flush_each_on_a_mac(tmp_path: Path, here: str) -> None:
    """As the last thing, of the folder: that flush takes what barriers have put in order along."""
    calls: list[tuple[int, str]] = []

    def control(fd: int, wanted: int) -> int:
        calls.append((wanted, "folder" if stat.S_ISDIR(os.fstat(fd).st_mode) else "file"))
        return 0

    full, barrier = 51, 85
    store = LocalStore(tmp_path, ME, disk=LocalDisk(here, control))
    put(store, 1, 0)
    calls.clear()  # folders were made
    put(store, 1, 0)
    shard = [(barrier, "file"), (full, "folder")]
    assert calls == (shard if here == "darwin" else [])
    calls.clear()
    store.commit(manifest_of(1))
    whole = [(barrier, "file"), (barrier, "folder"), (full, "folder")]
    assert calls == (whole if here == "darwin" else [])
    assert store.held(JOB, 1, stamp_of(1)) == (0,)
