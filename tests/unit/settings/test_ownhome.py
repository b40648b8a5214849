"""Homes that another account could replace, or what leads to them, are refused."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from elasticd.checkpoints.disk import LOCAL_DISK, write_beside
from elasticd.cli import clusterhome
from elasticd.cli.local import down, up
from elasticd.client.client import Client
from elasticd.client.connection import NobodyListens
from elasticd.core.words.requests.looking import ShowStatus
from elasticd.errors import UsageError
from elasticd.settings import ownhome
from elasticd.settings.ownhome import (
    ignoring_owners,
    make_inside,
    make_private,
    refuse_open,
    refuse_ownerless,
)
from elasticd.settings.volumes import Volume
from elasticd.shell.control.jobsfolder import find_jobs, refuse_foreign
from elasticd.shell.storage.starting import hindrances

ME, OTHER = 54_321, 12_345

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="gives folders to other accounts")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Of an account of its own, if we are root; what is above it is root's, or ours."""
    made = tmp_path / "above" / "home"
    make_private(made)
    if os.geteuid() == 0:
        os.chown(made.parent, ME, -1)
        os.chown(made, ME, -1)
    return made


def owner() -> int:
    return ME if os.geteuid() == 0 else os.geteuid()


def test_nobody_may_write_in_what_is_made_on_the_way_to_a_home(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        make_private(tmp_path / "state" / "x" / "home")
    finally:
        os.umask(before)
    made = [tmp_path / "state", tmp_path / "state" / "x", tmp_path / "state" / "x" / "home"]
    assert [oct(folder.stat().st_mode & 0o777) for folder in made] == ["0o755", "0o755", "0o700"]
    refuse_open(made[-1])


def test_a_home_of_ones_own_is_taken_also_by_a_link(home: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("above")
    (tmp_path / "second").symlink_to(tmp_path / "link" / ".." / "above" / "home")
    for way in (home, tmp_path / "link" / "home", tmp_path / "second"):
        refuse_open(way, owner())


@pytest.mark.parametrize("way", ["home", "../above/home", "linked"])
def test_a_folder_above_that_all_may_write_is_refused(way: str, home: Path) -> None:
    (home.parent / "linked").symlink_to(home)
    home.parent.chmod(0o777)
    with pytest.raises(UsageError, match=f"chmod o-w {re.escape(str(home.parent))}"):
        refuse_open(home.parent / way, owner())
    home.parent.chmod(0o1777)
    refuse_open(home, owner())


@as_root
def test_a_link_or_a_folder_of_another_account_is_refused(home: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(home)
    os.chown(link, OTHER, -1, follow_symlinks=False)
    for me in (ME, 0):
        with pytest.raises(UsageError, match=f"{link}, on the way to {link}, belongs to another"):
            refuse_open(link, me)
    os.chown(home.parent, OTHER, -1)
    with pytest.raises(UsageError, match=f"{home.parent}, on the way to {home}, belongs to"):
        refuse_open(home, ME)


def ownerless(patch: pytest.MonkeyPatch, mounted: str, kind: str) -> None:
    patch.setattr(ownhome, "ignoring_owners", lambda home: Volume(mounted, kind))


def test_a_disk_of_a_mac_on_which_owners_do_not_count_holds_no_home(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ignoring_owners(home, "linux") is None
    refuse_ownerless(home, owner())
    ownerless(monkeypatch, "/Volumes/My disk", "apfs")
    with pytest.raises(UsageError) as caught:
        refuse_ownerless(home, owner())
    first, _, then = str(caught.value).partition("'elasticctl service stop'")
    assert "/Volumes/My disk, apfs" in first
    assert ", then sudo diskutil enableOwnership '/Volumes/My disk', then" in then


@pytest.mark.parametrize("kind", ["exfat", "msdos", "smbfs", "nfs", "webdav", "ntfs"])
def test_where_no_owners_can_be_kept_nobody_is_told_to_have_them(
    kind: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ownerless(monkeypatch, "/Volumes/Stick", kind)
    with pytest.raises(UsageError, match=r"daemon: name a home on another disk$"):
        refuse_ownerless(home, owner())


def test_on_such_a_disk_none_starts_or_joins_but_one_that_runs_takes_commands(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ownerless(monkeypatch, "/Volumes/My disk", "apfs")
    (found,) = hindrances(home, me=owner())
    assert "macOS ignores who owns a file" in found.cause
    me = owner()
    monkeypatch.setattr(os, "geteuid", lambda: me)
    for refused in (clusterhome.make_members, lambda home: up(home / "local", 1)):
        with pytest.raises(UsageError, match="macOS ignores who owns a file"):
            refused(home)
    with pytest.raises(NobodyListens):
        Client(home).open(ShowStatus())
    assert down(home / "local") == []


def test_a_link_that_leads_to_itself_ends(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="levels of symbolic links"):
        refuse_open(tmp_path / "a" / "home")


@as_root
def test_a_home_that_a_group_may_write_is_refused(home: Path) -> None:
    os.chown(home, -1, 1)
    home.chmod(0o770)
    with pytest.raises(UsageError, match=r"by the group .*, which could command"):
        refuse_open(home, ME)
    home.chmod(0o750)
    refuse_open(home, ME)


def test_a_client_says_nothing_to_a_daemon_that_another_account_may_have_put_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "control.sock").touch()
    if os.geteuid() == 0:
        os.chown(tmp_path, OTHER, -1)
    monkeypatch.setattr(os, "geteuid", lambda: ME)
    with pytest.raises(UsageError, match="belongs to another account"):
        Client(tmp_path).open(ShowStatus())


@as_root
@pytest.mark.parametrize("given", ["job", "job/job.toml"])
def test_a_job_of_another_account_is_not_taken(given: str, tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "job.toml").write_text("")
    for path in ("job", "job/job.toml"):
        os.chown(tmp_path / path, ME, -1)
    (job,) = find_jobs(tmp_path)
    refuse_foreign(job, ME)
    os.chown(tmp_path / given, OTHER, -1)
    (job,) = find_jobs(tmp_path)
    with pytest.raises(UsageError, match="belongs to another account"):
        refuse_foreign(job, ME)
    refuse_foreign(job, 0)


@pytest.mark.parametrize("laid", ["link", "fifo", "file"])
def test_what_lies_under_a_temporary_name_is_not_written_to(laid: str, tmp_path: Path) -> None:
    precious, beside = tmp_path / "precious", tmp_path / "model.safetensors.tmp"
    precious.write_bytes(b"precious")
    if laid == "link":
        beside.symlink_to(precious)
    elif laid == "fifo":
        os.mkfifo(beside)
    else:
        os.link(precious, beside)
    write_beside(LOCAL_DISK, tmp_path / "model.safetensors", [b"a model"])
    assert precious.read_bytes() == b"precious"
    assert (tmp_path / "model.safetensors").read_bytes() == b"a model"


def test_what_is_made_in_a_home_makes_no_home(tmp_path: Path) -> None:
    home = tmp_path / "disk/home"
    with pytest.raises(FileNotFoundError):
        make_inside(home, home / "output/a-1")
    assert list(tmp_path.iterdir()) == []
    home.mkdir(parents=True)
    for _ in range(2):
        make_inside(home, home / "output/a-1")
    assert (home / "output/a-1").is_dir()
    make_inside(home, home)
