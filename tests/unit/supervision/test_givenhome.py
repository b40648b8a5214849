"""A home that root makes for another account, which may lay links meanwhile."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from elasticd.errors import UsageError
from elasticd.supervision.givenhome import make_home
from elasticd.supervision.service import invoking_user
from tests.integration.otheraccount import NAME, need_root
from tests.nobody import NOBODY


@pytest.fixture
def theirs() -> Iterator[Path]:
    """A folder of another account, which that can reach."""
    need_root()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made).resolve()
        os.chown(folder, NOBODY, -1)
        folder.chmod(0o755)
        yield folder


def test_homes_and_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SUDO_USER", raising=False)
    make_home(tmp_path / "a" / "b", invoking_user())
    make_home(tmp_path / "a" / "b", None)
    assert (tmp_path / "a" / "b").owner() == invoking_user()
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700
    with pytest.raises(UsageError, match="no user"):
        make_home(tmp_path / "c", "nobody-of-that-name")


def test_what_is_missing_becomes_the_accounts(theirs: Path) -> None:
    home = theirs / "a" / "b" / "home"
    make_home(home, NAME)
    assert {each.owner() for each in (home, *home.parents[:2])} == {NAME}
    assert home.stat().st_mode & 0o777 == 0o700


def test_their_link_leads_root_to_their_own_folders_alone(theirs: Path, tmp_path: Path) -> None:
    (theirs / "own").mkdir()
    os.chown(theirs / "own", NOBODY, -1)
    for name, target in (("good", Path("own")), ("bad", tmp_path)):
        (theirs / name).symlink_to(target)
        os.lchown(theirs / name, NOBODY, -1)
    make_home(theirs / "good" / "x" / "home", NAME)
    assert (theirs / "own" / "x" / "home").owner() == NAME
    with pytest.raises(UsageError, match="leads to a folder that isn't nobody's"):
        make_home(theirs / "bad" / "x" / "home", NAME)
    assert not list(tmp_path.iterdir())


def test_roots_own_link_is_followed(theirs: Path, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "there")
    make_home(tmp_path / "link" / "home", NAME)
    assert (tmp_path / "there" / "home").owner() == NAME
    assert (tmp_path / "there").owner() == "root"


@pytest.mark.parametrize("by", ["link", "folder", "file in it"])
def test_a_folder_that_is_swapped_gives_nothing_of_roots_away(
    theirs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """At the worst moment: root has made it, and not given it away."""
    home, bait, mkdir = theirs / "home", tmp_path / "of-root", os.mkdir
    mkdir(bait)

    def swapped(*arguments: Any, **named: Any) -> None:
        mkdir(*arguments, **named)
        if by == "file in it":
            (home / "of-root").touch()
            return
        home.rename(theirs / "aside")
        if by == "link":
            home.symlink_to(bait)
        else:
            mkdir(home)
            os.chown(home, NOBODY, -1)

    monkeypatch.setattr(os, "mkdir", swapped)
    with pytest.raises((UsageError, OSError)):
        make_home(home, NAME)
    assert bait.owner() == "root"
