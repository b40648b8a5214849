from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from elasticd.shell.storage.durable import PARTIAL_SUFFIX, write_durable, write_whole


def test_replaces_the_whole_content_and_leaves_nothing_beside(tmp_path: Path) -> None:
    path = tmp_path / "state"
    write_durable(path, b"old and long")
    write_durable(path, b"new")
    assert path.read_bytes() == b"new"
    assert [entry.name for entry in tmp_path.iterdir()] == ["state"]
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_leftover_of_a_crashed_writer_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.with_name(path.name + PARTIAL_SUFFIX).write_bytes(b"x" * 1000)
    write_durable(path, b"new")
    assert path.read_bytes() == b"new"


def test_a_failed_write_keeps_the_old_content(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    path.mkdir()
    (path / "inside").write_bytes(b"old")
    with pytest.raises(OSError, match="irectory"):
        write_durable(path, b"new")
    assert [entry.name for entry in tmp_path.iterdir()] == ["folder"]
    assert (path / "inside").read_bytes() == b"old"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("write", [write_durable, write_whole])
def test_a_full_disk_is_named(tmp_path: Path, write: Callable[[Path, bytes], None]) -> None:
    path = tmp_path / "state"
    path.with_name(path.name + PARTIAL_SUFFIX).symlink_to("/dev/full")
    with pytest.raises(OSError, match=f"No space left on device: '{path}'"):
        write(path, b"new")
