"""Which folders of a home get a sign, and what is said where it is missing."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from elasticd.checkpoints.apart import SIGN, note_of
from elasticd.shell.storage.homefolders import SIGNED, misplaced
from elasticd.shell.storage.ownsigns import lay
from tests.tinydisk import tiny_disk


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """One that was started with its checkpoints behind a link."""
    home = tmp_path / "home"
    home.mkdir()
    (tmp_path / "disk/job").mkdir(parents=True)
    (home / "checkpoints").symlink_to(tmp_path / "disk")
    assert list(misplaced(home)) == [], "of the release before there is no note"
    lay(home)
    return home


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_home_on_one_disk_gets_none(tmp_path: Path) -> None:
    lay(tmp_path)
    assert names(tmp_path) == []
    (tmp_path / "checkpoints").mkdir()
    lay(tmp_path)
    assert names(tmp_path) == ["checkpoints"] and names(tmp_path / "checkpoints") == []


@pytest.mark.parametrize("name", SIGNED)
def test_the_place_of_what_is_not_made_again_is_told(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "home" / name
    (tmp_path / "disk").mkdir()
    folder.parent.mkdir()
    folder.symlink_to(tmp_path / "disk")
    lay(folder.parent)
    assert list(misplaced(folder.parent)) == []
    (tmp_path / "disk" / SIGN).unlink()
    assert [path for path, *_ in misplaced(folder.parent)] == [folder]


def test_what_is_behind_a_link_gets_one_that_stays(home: Path) -> None:
    note = note_of(home / "checkpoints")
    assert names(home) == ["checkpoints", "checkpoints.apart"]
    said = note.read_bytes()
    assert said and (home / "checkpoints" / SIGN).read_bytes() == said
    lay(home)
    assert note.read_bytes() == said and list(misplaced(home)) == []


def test_so_does_what_is_a_disk(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    with tiny_disk(folder, "64k"):
        lay(tmp_path)
        assert list(misplaced(tmp_path)) == []
    assert [path for path, *_ in misplaced(tmp_path)] == [folder]
    folder.rmdir()
    assert list(misplaced(tmp_path)) == [], "no mount point is none of a disk"


def moved_with_all(home: Path) -> None:
    shutil.copytree(home.parent / "disk", home.parent / "larger")
    (home / "checkpoints").unlink()
    (home / "checkpoints").symlink_to(home.parent / "larger")


def moved_back(home: Path) -> None:
    (home / "checkpoints").unlink()
    (home.parent / "disk").rename(home / "checkpoints")


def removed(home: Path) -> None:
    (home / "checkpoints").unlink()


@pytest.mark.parametrize("change", [moved_with_all, moved_back, removed])
def test_what_people_do_between_two_starts_is_taken(
    home: Path, change: Callable[[Path], None]
) -> None:
    change(home)
    assert list(misplaced(home)) == []
    lay(home)
    (home / "checkpoints").mkdir(exist_ok=True)
    assert list(misplaced(home)) == []


def test_a_home_that_is_moved_keeps_its_folders(home: Path) -> None:
    there = home.rename(home.with_name("there"))
    assert list(misplaced(there)) == []
    lay(there)
    assert list(misplaced(there)) == []


def test_a_new_folder_is_taken_once_that_is_said(home: Path) -> None:
    (home.parent / "new").mkdir()
    (home / "checkpoints").unlink()
    (home / "checkpoints").symlink_to(home.parent / "new")
    ((path, cause, cure),) = misplaced(home)
    note = note_of(home / "checkpoints")
    assert path == home / "checkpoints" and "is another folder than it was" in cause
    assert cure.startswith("Mount that disk.") and cure.endswith(f"rm {note}")
    note.unlink()
    assert list(misplaced(home)) == []
    lay(home)
    assert note.read_bytes() == (home.parent / "new" / SIGN).read_bytes()
    (home.parent / "new" / SIGN).unlink()
    assert [path for path, *_ in misplaced(home)] == [home / "checkpoints"]


def test_a_disk_that_takes_no_sign_keeps_no_daemon_from_starting(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    with tiny_disk(folder, files=1):
        lay(tmp_path)
        assert list(misplaced(tmp_path)) == [] and names(tmp_path) == ["checkpoints"]
    out = capsys.readouterr().out
    assert "a folder's disk is not remembered" in out and "No space left" in out
