"""A folder goes, whatever a script has put in it, and nothing else."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from elasticd.removing import remove_file, remove_tree
from tests.unit.nested import nest


@pytest.fixture
def few_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/dev/fd")) + 8, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize(("name", "levels"), [("d", 1100), ("d", 300), ("d" * 250, 20)])
@pytest.mark.usefixtures("few_descriptors")
def test_folders_in_each_other_without_end(tmp_path: Path, name: str, levels: int) -> None:
    folder = nest(tmp_path / "gone", name, levels)
    remove_tree(folder)
    assert os.listdir(tmp_path) == []


def test_links_are_not_followed(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").touch()
    folder = tmp_path / "gone"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "link").symlink_to(kept)
    (folder / "dead").symlink_to("nowhere")
    os.mkfifo(folder / "pipe")
    remove_tree(folder)
    (tmp_path / "link").symlink_to(kept)
    remove_tree(tmp_path / "link")
    assert os.listdir(tmp_path) == ["kept"] and os.listdir(kept) == ["file"]


def test_a_file_and_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    remove_tree(tmp_path / "file")
    remove_tree(tmp_path / "file")
    remove_tree(tmp_path / "none" / "file")
    assert os.listdir(tmp_path) == []


def test_a_folder_that_was_closed(tmp_path: Path) -> None:
    folder = nest(tmp_path / "gone", "d", 3)
    for path in (folder / "d" / "d", folder / "d", folder):
        path.chmod(0o000)
    remove_tree(folder)
    assert os.listdir(tmp_path) == []


def test_what_stays_is_named_and_the_rest_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = nest(tmp_path / "gone", "d", 2)
    for name in ("a", "z"):
        (folder / name).mkdir()
        (folder / name / "busy").touch()
        (folder / name / "other").touch()
    unlink = os.unlink

    def busy(name: str, dir_fd: int) -> None:
        if name == "busy":
            raise OSError(16, "Device or resource busy")
        unlink(name, dir_fd=dir_fd)

    monkeypatch.setattr(os, "unlink", busy)
    with pytest.raises(OSError, match=r"gone/[az]/busy"):
        remove_tree(folder)
    monkeypatch.undo()
    assert sorted(str(path.relative_to(folder)) for path in folder.rglob("*")) == [
        "a", "a/busy", "z", "z/busy",
    ]  # fmt: skip


class ReadOnly(type(Path())):  # type: ignore[misc]
    """On a disk that is read-only: it says so before it looks for what is to go."""

    def unlink(self, missing_ok: bool = False) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(self))


def test_why_a_file_stays_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert remove_file(tmp_path / "file") == "" == remove_file(tmp_path / "file")
    (tmp_path / "file").touch()
    assert str(tmp_path / "file") in remove_file(ReadOnly(tmp_path / "file"))
    assert remove_file(ReadOnly(tmp_path / "none")) == ""
    assert remove_file(ReadOnly(tmp_path / "file" / "none")) == ""
    assert os.listdir(tmp_path) == ["file"]
