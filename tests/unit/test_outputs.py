"""Which output files travel, and which names are taken from elsewhere."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from elasticd import outputs
from elasticd.errors import OperationError, ProtocolError
from elasticd.outputs import Listing, OutputFile, checked, index_of, list_files, open_file, within


def write(path: Path, text: str = "x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def names(listing: Listing) -> list[str]:
    return [file.name for file in listing.files]


def test_regular_files_are_listed_and_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    secret = write(tmp_path / "secret")
    write(folder / "b" / "c.txt", "four")
    write(folder / "a%/logs.csv")
    write(folder / outputs.OWN_FOLDER / index_of("a%/logs.csv"))
    write(folder / f"{outputs.PARTIAL_PREFIX}a")
    (folder / "link").symlink_to(secret)
    (folder / "links").symlink_to(tmp_path)
    os.mkfifo(folder / "pipe")
    (folder / "empty").mkdir()
    found = list_files(folder)
    assert names(found) == ["a%/logs.csv", "b/c.txt"]
    assert [file.managed for file in found.files] == [True, False]
    assert found.by_name()["b/c.txt"].bytes == 4 and found.bytes == 5


def test_a_folder_that_is_not_there_has_no_files(tmp_path: Path) -> None:
    assert list_files(tmp_path / "none") == Listing(())


def test_too_many_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "MOST_FILES", 2)
    for name in "abc":
        write(tmp_path / name)
    with pytest.raises(OperationError, match="more than 2 files"):
        list_files(tmp_path)


def file(name: str, size: int) -> OutputFile:
    return OutputFile(name, size, 0, 0)


@pytest.mark.parametrize(
    ("limit", "kept", "skipped"),
    [
        (1000, ["a", "b", "c"], ()),
        (111, ["a", "b", "c"], ()),
        (110, ["b", "c"], ("a",)),
        (10, ["c"], ("a", "b")),
        (0, [], ("a", "b", "c")),
    ],
)
def test_the_smaller_files_are_kept(limit: int, kept: list[str], skipped: tuple[str, ...]) -> None:
    found = within(Listing((file("a", 100), file("b", 10), file("c", 1))), limit)
    assert (names(found), found.skipped) == (kept, skipped)


@pytest.mark.parametrize(
    "bad",
    [
        ["/etc/passwd"], ["../up"], ["a/../../up"], ["a//b"], ["./a"], ["a/"], [""], ["a\0b"],
        [".elasticd/a.steps"], ["a/.partial-b"], ["a", "a"], ["a", "a/b"], ["x" * 1001],
        [str(number) for number in range(outputs.MOST_FILES + 1)],
    ],
)  # fmt: skip
def test_hostile_names_are_refused(bad: Sequence[str]) -> None:
    with pytest.raises(ProtocolError):
        checked(bad)


def test_a_file_is_opened_by_its_name(tmp_path: Path) -> None:
    write(tmp_path / "a" / "b", "text")
    fd = open_file(tmp_path, "a/b")
    assert os.read(fd, 9) == b"text"
    os.close(fd)


def test_no_link_is_followed(tmp_path: Path) -> None:
    secret = write(tmp_path / "other" / "secret")
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "link").symlink_to(secret)
    (folder / "links").symlink_to(secret.parent)
    os.mkfifo(folder / "pipe")
    for name in ("link", "links/secret"):
        with pytest.raises(OSError):
            open_file(folder, name)
    with pytest.raises(OperationError, match="no regular file"):
        open_file(folder, "pipe")
    with pytest.raises(ProtocolError):
        open_file(folder, "../other/secret")


@pytest.mark.parametrize(
    "names",
    [
        ["A", "a"], ["\u00e9", "e\u0301"], ["A/x", "a"], ["a", "A/x"],
        [".Elasticd/log.steps"], [".PARTIAL-x"],
    ],
)  # fmt: skip
def test_names_that_are_one_on_some_disk_are_refused(names: list[str]) -> None:
    with pytest.raises(ProtocolError):
        checked(names)


def test_such_a_name_is_skipped_where_both_are_there(tmp_path: Path) -> None:
    for name in ("A", "a", "e\u0301", "\u00e9", "Z/x", "z"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    listing = list_files(tmp_path)
    assert [file.name for file in listing.files] == ["A", "Z/x", "e\u0301"]
    assert sorted(listing.skipped) == ["a", "z", "\u00e9"]
    checked([file.name for file in listing.files])


def test_folders_without_end_are_left_out(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["d"] * 200)
    deep.mkdir(parents=True)
    (deep / "x").touch()
    (tmp_path / "y").touch()
    assert [file.name for file in list_files(tmp_path).files] == ["y"]
