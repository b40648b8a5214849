"""How ``optimize --write`` changes a job's file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from elasticd.cli.entry import run
from elasticd.cli.optimize import _write
from elasticd.errors import UsageError

TEXT = """# mine
[job]
name = "one"
entrypoint = "train.py"
[batch]
global = 16
micro = 8  # at once
[train]
steps = 2
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    folder = tmp_path / "job"
    folder.mkdir()
    (folder / "train.py").touch()
    path = folder / "job.toml"
    path.write_text(TEXT)
    path.chmod(0o640)
    return path


def names(file: Path) -> list[str]:
    return sorted(each.name for each in file.parent.iterdir())


def test_what_others_have_put_beside_it_is_not_written_through(file: Path, tmp_path: Path) -> None:
    """Where a group may write in the folder, say."""
    precious = tmp_path / "precious"
    precious.write_text("mine")
    (file.parent / ".job.toml.new").symlink_to(precious)
    before = names(file)
    _write(file, 4)
    assert file.read_text() == TEXT.replace("micro = 8", "micro = 4")
    assert precious.read_text() == "mine" and names(file) == before
    assert file.stat().st_mode & 0o777 == 0o640


def test_a_link_stays_one(file: Path, tmp_path: Path) -> None:
    (file.parent / "train.py").rename(tmp_path / "train.py")
    link = tmp_path / "job.toml"
    link.symlink_to(file)
    _write(link, 4)
    assert link.is_symlink() and "micro = 4" in file.read_text()


def test_a_pipe_is_no_file_to_write_to(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], home: Path
) -> None:
    """It is told before anything is read from it."""
    os.mkfifo(tmp_path / "job.toml")
    assert run(["optimize", str(tmp_path), "--write", "--here", "--home", str(home)]) == 2
    assert "job.toml: is a pipe" in capfd.readouterr().err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_takes_nothing_is_told(file: Path) -> None:
    file.parent.chmod(0o500)
    with pytest.raises(UsageError, match="by hand"):
        _write(file, 4)
    file.parent.chmod(0o700)
