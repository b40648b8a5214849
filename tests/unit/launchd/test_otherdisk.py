"""A home on another disk: devices and mount points are made up."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from elasticd.errors import OperationError
from elasticd.launchd.otherdisk import (
    LOG,
    MOUNTED_LATE,
    device_of,
    is_apart,
    mounted_late,
    require_mounted,
)
from elasticd.launchd.plist import DaemonPlist
from elasticd.launchd.service import LaunchdService
from elasticd.shell.storage.homefolders import misplaced
from elasticd.supervision.service import Result
from tests.unit.launchd.fake_launchctl import FakeLaunchctl

DISK = Path("/Volumes/Fast SSD")


def on_other_disk(path: Path) -> int:
    return 2 if "ssd" in path.parts else 1


def test_a_home_is_apart_where_its_disk_is_another(tmp_path: Path) -> None:
    assert is_apart(tmp_path / "ssd/home", tmp_path, on_other_disk)
    assert not is_apart(tmp_path / "home", tmp_path, on_other_disk)
    assert is_apart(DISK / "home", tmp_path, lambda path: 1), "not mounted now"
    assert is_apart(Path("/VOLUMES/ssd/home"), tmp_path, lambda path: 1), "a Mac ignores case"
    assert not is_apart(tmp_path / "not/there", tmp_path)
    assert device_of(tmp_path / "not/there") == tmp_path.stat().st_dev

    def refuses(path: Path) -> int:
        raise OSError

    assert not is_apart(tmp_path, tmp_path, refuses)


def test_a_home_on_another_disk_has_its_log_on_the_accounts(tmp_path: Path) -> None:
    """And the service's folder: launchd needs both before it starts anything."""
    ours = DaemonPlist(tmp_path / "ssd/home", None, tmp_path / "ann", "/usr/bin")
    apart = replace(ours, apart=True)
    values, log = apart.values(), str(tmp_path / "ann" / LOG)
    assert values["StandardOutPath"] == values["StandardErrorPath"] == log
    assert values["WorkingDirectory"] == str(tmp_path / "ann")
    assert values["ProgramArguments"] == ours.values()["ProgramArguments"]
    launchctl = FakeLaunchctl()
    service = LaunchdService(
        apart, launchctl, tmp_path, lambda _: None, lint=lambda _: Result(0, "OK")
    )
    assert log in service.install(dry_run=True)
    said = service.install()
    assert "starts once that is mounted" in said and MOUNTED_LATE in said and said.endswith(log)
    assert Path(log).parent.is_dir() and log in service.log_command()
    assert service.installed_home() == apart.home
    beside = replace(service, plist=ours, folder=tmp_path / "ann")
    assert "mounted" not in beside.install() and beside.installed_home() == ours.home


@pytest.mark.parametrize("mounts", [{DISK}, {DISK / "deep"}])
def test_a_disk_that_is_there_lets_a_home_be_made(mounts: set[Path]) -> None:
    require_mounted(DISK / "deep/home", "darwin", mounts.__contains__)


def test_a_disk_that_is_not_there_does_not(tmp_path: Path) -> None:
    link = tmp_path / "home"
    link.symlink_to(DISK / "home")
    for home in (DISK / "home", link):
        with pytest.raises(OperationError, match=r"not mounted \(/Volumes/Fast SSD\): ") as told:
            require_mounted(home, "darwin", {Path("/")}.__contains__)
        assert f"connect it. {MOUNTED_LATE}." in str(told.value)
        require_mounted(home, "linux", {Path("/")}.__contains__)
    require_mounted(tmp_path, "darwin", {Path("/")}.__contains__)
    with pytest.raises(OperationError, match=r"not mounted \(/volumes/ssd\)"):
        require_mounted(Path("/volumes/ssd/home"), "darwin", {Path("/")}.__contains__)
    with pytest.raises(OperationError, match=r"not mounted \(/Volumes\)"):
        require_mounted(Path("/Volumes"), "darwin", {Path("/")}.__contains__)


def test_what_lies_on_a_disk_may_be_away_until_somebody_logs_in(tmp_path: Path) -> None:
    link, loop = tmp_path / "checkpoints", tmp_path / "logs"
    link.symlink_to(DISK / "states")
    loop.symlink_to(loop)
    assert mounted_late(link, "darwin") == mounted_late(DISK / "data", "darwin") == MOUNTED_LATE
    assert [mounted_late(path, "darwin") for path in (tmp_path, loop)] == ["", ""]
    assert mounted_late(DISK / "data", "linux") == ""
    (away, _, cure), (_, _, own) = misplaced(tmp_path, "darwin")
    assert away == link and cure.endswith(MOUNTED_LATE) and own.endswith("make the folder")
    assert MOUNTED_LATE not in repr(list(misplaced(tmp_path, "linux")))
