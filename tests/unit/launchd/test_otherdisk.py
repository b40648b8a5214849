"""A home on another disk: devices and mount points are made up."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from elasticd.errors import OperationError, UsageError
from elasticd.launchd.otherdisk import (
    LOG,
    MOUNTED_LATE,
    device_of,
    is_apart,
    log_aside,
    mounted_late,
    require_mounted,
)
from elasticd.launchd.plist import DaemonPlist
from elasticd.launchd.service import Agent, LaunchdService
from elasticd.shell.storage.homefolders import misplaced
from elasticd.supervision.service import Result
from tests.unit.launchd.fake_launchctl import FakeLaunchctl

DISK = Path("/Volumes/Fast SSD")


def on_other_disk(path: Path) -> int:
    return 2 if "ssd" in path.parts else 1


def test_a_home_is_apart_where_its_disk_is_another(tmp_path: Path) -> None:
    assert is_apart(tmp_path / "ssd/home", on_other_disk, tmp_path)
    assert not is_apart(tmp_path / "home", on_other_disk, tmp_path)
    assert not is_apart(tmp_path / "ssd/home", on_other_disk, tmp_path / "none"), "no Mac"
    assert is_apart(DISK / "home", lambda path: 1, tmp_path), "not mounted now"
    assert is_apart(Path("/VOLUMES/ssd/home"), lambda path: 1, tmp_path), "a Mac ignores case"
    assert not is_apart(tmp_path / "not/there", own_disk=tmp_path)
    assert device_of(tmp_path / "not/there") == tmp_path.stat().st_dev

    def refuses(path: Path) -> int:
        raise OSError

    assert not is_apart(tmp_path, refuses, tmp_path)


@pytest.mark.parametrize(
    ("home", "account", "log"),
    [
        ("/Users/ann/elasticd", "/Users/ann", None),
        ("/Volumes/ssd/elasticd", "/Users/ann", "/Users/ann/Library/Logs/elasticd/daemon.log"),
        ("/Volumes/ssd/ann/elasticd", "/Volumes/ssd/ann", "/Library/Logs/elasticd-501/daemon.log"),
        ("/Users/Shared/elasticd", "/Volumes/ssd/ann", None),
    ],
)
def test_no_log_is_on_a_disk_that_may_be_away(home: str, account: str, log: str | None) -> None:
    """Be it the account's: launchd would make the folders of the log in the disk's place."""
    found = log_aside(Path(home), Path(account), 501)
    assert found == (None if log is None else Path(log))


def test_an_account_on_another_disk_has_no_agent(tmp_path: Path) -> None:
    plist = DaemonPlist(tmp_path / "home", None, DISK / "ann", "/usr/bin")
    launchctl = FakeLaunchctl()
    service = LaunchdService(plist, launchctl, tmp_path, agent=Agent("ann", 501))
    for dry_run in (True, False):
        with pytest.raises(UsageError, match=r"/ann, the folder.* no agent from there.*sudo elas"):
            service.install(dry_run)
    assert launchctl.calls == [] and service.installed() is None


def test_a_program_on_another_disk_is_told_to_start_late(tmp_path: Path) -> None:
    python = str(DISK / "checkout/.venv/bin/python")
    plist = DaemonPlist(tmp_path / "home", None, tmp_path, "/usr/bin", python)
    said = LaunchdService(plist, FakeLaunchctl(), tmp_path).install(dry_run=True)
    assert f"interpreter {python}: launchd can't start it" in said and MOUNTED_LATE in said
    assert "The home is on another disk" not in said


def test_a_home_on_another_disk_has_its_log_on_macos_own(tmp_path: Path) -> None:
    """And the service's folder: launchd needs both before it starts anything."""
    ours = DaemonPlist(tmp_path / "ssd/home", None, tmp_path / "ann", "/usr/bin")
    log = str(tmp_path / "ann" / LOG)
    apart = replace(ours, aside=Path(log))
    values = apart.values()
    assert values["StandardOutPath"] == values["StandardErrorPath"] == log
    assert values["WorkingDirectory"] == "/"
    assert values["ProgramArguments"] == ours.values()["ProgramArguments"]
    launchctl = FakeLaunchctl()
    service = LaunchdService(
        apart, launchctl, tmp_path, lambda _: None, lint=lambda _: Result(0, "OK")
    )
    assert log in service.install(dry_run=True)
    said = service.install()
    assert f"starts once that is mounted. It\nlogs into {log}.\n{MOUNTED_LATE}." in said
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
