"""Each trainer's own copy of its job's folder."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from elasticd.train.link import clones
from elasticd.train.link.clones import POOL, Clone, clone_folder
from elasticd.train.link.filecopy import copy_file

Copy = Callable[[Path, Path], None]


@pytest.fixture
def sent(tmp_path: Path) -> Path:
    """A job's folder as it was sent."""
    folder = tmp_path / "work" / "job"
    (folder / "data" / "deep").mkdir(parents=True)
    (folder / "train.py").write_text("print(1)\n")
    (folder / "data" / "words.txt").write_text("some words\n")
    (folder / "data" / "deep" / "run.sh").write_text("#!/bin/sh\n")
    (folder / "data" / "deep" / "run.sh").chmod(0o755)
    return folder


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    return tmp_path / "clones" / "job"


def content(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mode)
        for path in folder.rglob("*")
        if path.is_file()
    }


def folders(pool: Path) -> list[str]:
    return sorted(path.name for path in pool.iterdir() if path.is_dir())


def no_cloning(source: Path, target: Path) -> None:
    raise OSError(errno.EOPNOTSUPP, "this disk can't")


def plainly(source: Path, target: Path) -> None:
    copy_file(source, target, no_cloning)


@pytest.mark.parametrize("copy", [copy_file, plainly], ids=["as the disk can", "plain"])
def test_two_trainers_have_folders_of_their_own(sent: Path, pool: Path, copy: Copy) -> None:
    first, second = clone_folder(sent, pool, copy), clone_folder(sent, pool, copy)
    assert first.folder != second.folder
    assert content(first.folder) == content(second.folder) == content(sent)
    for path in first.folder.rglob("*"):
        assert path.is_dir() or path.stat().st_nlink == 1
    (first.folder / "train.py").write_text("print(2)\n")
    (first.folder / "train.log").write_text("step 1\n")
    assert content(second.folder) == content(sent)
    assert "train.log" not in content(sent)


def test_a_folder_is_used_again_with_what_was_added_and_as_it_was_sent(
    sent: Path, pool: Path
) -> None:
    with clone_folder(sent, pool) as first:
        (first.folder / "cache.bin").write_bytes(b"a minute's work")
        (first.folder / "data" / "words.txt").write_text("no more words")
        (first.folder / "train.py").unlink()
        used = first.folder
    with clone_folder(sent, pool) as again:
        assert again.folder == used
        expected = content(sent)
        assert {**content(used), **expected} == content(used)
        assert set(content(used)) - set(expected) == {"cache.bin"}


def test_a_file_that_did_not_change_is_not_written_again(sent: Path, pool: Path) -> None:
    """Python's compiled modules are told by their source's time."""
    copied: list[str] = []

    def counted(source: Path, target: Path) -> None:
        copied.append(source.name)
        copy_file(source, target)

    with clone_folder(sent, pool, counted) as first:
        assert (first.folder / "train.py").stat().st_mtime_ns == (
            (sent / "train.py").stat().st_mtime_ns
        )
        (first.folder / "train.py").write_text("print(3)\n")  # of the same length
    with clone_folder(sent, pool, counted):
        assert sorted(copied) == ["run.sh", "train.py", "train.py", "words.txt"]


def test_what_a_script_put_in_the_way_is_replaced_and_never_followed(
    sent: Path, pool: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "words.txt").write_text("not ours")
    with clone_folder(sent, pool) as first:
        folder = first.folder
        (folder / "data").rename(folder / "moved")
        (folder / "data").symlink_to(outside)
        (folder / "train.py").unlink()
        (folder / "train.py").mkdir()
    with clone_folder(sent, pool):
        assert {**content(folder), **content(sent)} == content(folder)
    with clone_folder(sent, pool):
        (folder / "train.py").unlink()
        (folder / "train.py").symlink_to(outside / "words.txt")
        (folder / "data" / "deep" / "run.sh").unlink()
        (folder / "data" / "deep").rmdir()
        (folder / "data" / "deep").write_text("a file")
    with clone_folder(sent, pool):
        assert {**content(folder), **content(sent)} == content(folder)
    assert [path.name for path in outside.iterdir()] == ["words.txt"]
    assert (outside / "words.txt").read_text() == "not ours"


def test_a_copy_that_was_interrupted_is_made_good(sent: Path, pool: Path) -> None:
    def dies(source: Path, target: Path) -> None:
        target.write_bytes(bytes(source.stat().st_size))
        raise OSError(errno.ENOSPC, "the disk is full")

    with pytest.raises(OSError, match="full"):
        clone_folder(sent, pool, dies)
    with clone_folder(sent, pool) as one:
        assert content(one.folder) == content(sent)
        assert folders(pool) == [one.folder.name]


def test_more_folders_than_two_are_there_while_they_are_needed(sent: Path, pool: Path) -> None:
    held = [clone_folder(sent, pool) for _ in range(POOL + 1)]  # one of them is about to die
    assert len(folders(pool)) == POOL + 1
    for one in held[1:]:
        one.release()
    with clone_folder(sent, pool):
        assert len(folders(pool)) == POOL


def test_there_is_an_end_to_it(sent: Path, pool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clones, "MOST", 3)
    held = [clone_folder(sent, pool) for _ in range(3)]
    with pytest.raises(OSError, match="3 processes still use"):
        clone_folder(sent, pool)
    assert all(isinstance(one, Clone) for one in held)


def test_a_folder_is_held_by_the_processes_that_it_was_forked_into(sent: Path, pool: Path) -> None:
    """A data loader's worker goes on reading when its trainer was killed."""
    first = clone_folder(sent, pool)
    end, other = os.pipe()
    worker = os.fork()
    if worker == 0:
        os.close(other)
        os.read(end, 1)
        os._exit(0)
    os.close(end)
    first.release()
    with clone_folder(sent, pool) as second:
        assert second.folder != first.folder
    os.close(other)
    os.waitpid(worker, 0)
    with clone_folder(sent, pool) as third:
        assert third.folder == first.folder


@pytest.mark.skipif(sys.platform not in ("linux", "darwin"), reason="no other system has this")
def test_this_system_clones_files_or_says_that_it_can_not(tmp_path: Path) -> None:
    from elasticd.train.link.filecopy import system_clone

    (tmp_path / "a").write_bytes(b"x" * 10_000)
    try:
        system_clone(tmp_path / "a", tmp_path / "b")
    except OSError as error:
        assert error.errno
        assert not (tmp_path / "b").exists()
    else:
        assert (tmp_path / "b").read_bytes() == b"x" * 10_000
