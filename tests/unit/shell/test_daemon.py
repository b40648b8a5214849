"""What keeps a daemon from starting."""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path

import pytest

from elasticd.checkpoints.apart import note_of
from elasticd.errors import OperationError, UsageError
from elasticd.settings.ownhome import refuse_open
from elasticd.shell.daemon import main
from tests.integration.otheraccount import need_root


def test_a_home_that_everybody_may_write_to_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tmp_path.chmod(0o777)
    assert main(["run", "--home", str(tmp_path)]) == 2
    assert f"chmod 700 {tmp_path}" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["lissen = 1\n", None])
def test_settings_that_are_wrong_make_no_home(
    text: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, home = tmp_path / "mine.toml", tmp_path / "home"
    if text is not None:
        file.write_text(text)
    assert main(["run", "--home", str(home), "--config", str(file)]) == 2
    assert capsys.readouterr().err.startswith(f"elasticd: {file}") and not home.exists()


def test_a_home_of_another_account_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    need_root()
    os.chown(tmp_path, 12345, -1)
    assert main(["run", "--home", str(tmp_path)]) == 2
    assert "belongs to another account of this machine (12345)" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_home_is_its_owners_and_roots(tmp_path: Path) -> None:
    owner = tmp_path.stat().st_uid
    refuse_open(tmp_path, owner)
    with pytest.raises(UsageError, match="belongs to another account") if owner else nullcontext():
        refuse_open(tmp_path, owner + 1)


def test_a_disk_that_is_not_mounted_keeps_a_home_from_being_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is tried again. Else a daemon would begin a cluster of its own in the empty folder."""
    home = tmp_path / "disk/elasticd"

    def mounted(home: Path) -> None:
        raise OperationError(f"{home} is on a disk that is not mounted")

    assert main(["run", "--home", str(home)], mounted) == 1
    assert "is not mounted" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_disk_that_is_not_mounted_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 1: a service tries again, and the disk may be there by then."""
    (tmp_path / "checkpoints").symlink_to(tmp_path / "away")
    assert main(["run", "--home", str(tmp_path)]) == 1
    assert capsys.readouterr().err == (
        f"elasticd: {tmp_path}/checkpoints leads to {tmp_path}/away, where no folder is. Mount the"
        " disk that it is on, or make the folder\n"
    )


def test_a_mount_point_is_not_taken_for_the_disk_that_is_away(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 1, as above."""
    (tmp_path / "checkpoints").mkdir()
    note_of(tmp_path / "checkpoints").write_text("one\n")
    assert main(["run", "--home", str(tmp_path)]) == 1
    assert capsys.readouterr().err == (
        f"elasticd: {tmp_path}/checkpoints is another folder than it was: that one was on a disk of"
        " its own. Mount that disk. If this folder is to take its place, say rm"
        f" {tmp_path}/checkpoints.apart\n"
    )
