"""What is brought for a client goes, also if the daemon was killed meanwhile."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from elasticd.shell.storage.scratch import Scratch


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def test_what_a_killed_daemon_left_goes_at_the_next_start(tmp_path: Path, temporary: Path) -> None:
    home, other = Scratch(tmp_path / "home"), Scratch(tmp_path / "other")
    killed = home.folder()
    left = killed.__enter__()
    (left / "shard").write_bytes(b"large")
    assert left.parent == temporary and left.stat().st_mode & 0o777 == 0o700
    with other.folder() as theirs:
        Scratch(tmp_path / "home").sweep()
        assert not left.exists() and theirs.is_dir()
    assert list(temporary.iterdir()) == []


def test_what_is_no_folder_of_ours_stays(tmp_path: Path, temporary: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    with Scratch(tmp_path / "home").folder() as folder:
        name = folder.name
    (temporary / f"{name}1").symlink_to(kept)
    (temporary / f"{name}2").touch()
    if os.geteuid() == 0:
        (temporary / f"{name}3").mkdir()
        os.chown(temporary / f"{name}3", 12345, -1)
    before = sorted(temporary.iterdir())
    Scratch(tmp_path / "home").sweep()
    assert sorted(temporary.iterdir()) == before and kept.is_dir()
