"""Which output files travel, and which names are taken from elsewhere."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest

from elasticd import outputs
from elasticd.errors import OperationError, ProtocolError
from elasticd.outputs import (
    Listing,
    OutputFile,
    OutputSet,
    checked,
    index_of,
    list_files,
    open_file,
    within,
)
from elasticd.removing import remove_tree
from elasticd.shell.storage.outputcopies import decode_set, encode_set
from elasticd.types import NodeId
from tests.unit.nested import nest


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


def test_of_too_many_files_the_first_travel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outputs, "MOST_FILES", 2)
    monkeypatch.setattr(outputs, "MOST_SKIPPED", 3)
    for name in "gfedcba":
        write(tmp_path / name)
    found = list_files(tmp_path)
    assert names(found) == ["a", "b"] and found.skipped == ("c", "d", "e")
    assert len(within(Listing(found.files, ("c", "d", "e")), 0).skipped) == 3


def test_a_file_in_the_place_of_the_librarys_folder_is_skipped(tmp_path: Path) -> None:
    write(tmp_path / outputs.OWN_FOLDER)
    write(tmp_path / "a")
    write(tmp_path / "sub" / outputs.OWN_FOLDER / "x")
    write(tmp_path / f"{outputs.PARTIAL_PREFIX}log.csv")
    write(tmp_path / outputs.partial_name())
    found = list_files(tmp_path)
    assert names(found) == ["a"]
    assert found.skipped == (".elasticd", ".partial-log.csv", "sub/.elasticd")


def test_what_is_no_folder_holds_nothing(tmp_path: Path) -> None:
    assert list_files(write(tmp_path / "file")) == Listing(())


@pytest.mark.parametrize(("name", "levels"), [("d" * 250, 20), ("d", 1100), ("d" * 100, 45)])
def test_a_path_without_end_is_skipped(tmp_path: Path, name: str, levels: int) -> None:
    nest(tmp_path, name, levels)
    write(tmp_path / "y")
    found = list_files(tmp_path)
    assert names(found) == ["y"]
    (skipped,) = found.skipped
    assert skipped.startswith(f"{name}/"[:200]) and len(skipped) <= 201
    remove_tree(tmp_path / name)


def test_a_name_that_is_no_text_is_skipped_and_shown(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"\xff")).touch()
    (tmp_path / "a\nb").touch()
    found = list_files(tmp_path)
    assert names(found) == ["a\nb"] and found.skipped == ("\\udcff",)
    encode_set(OutputSet(NodeId("main"), 1, 2.0, found))


class Status:
    """What a disk that knows all times says of a file; here it may not."""

    def __init__(self, mtime_ns: int, inode: int) -> None:
        self.st_mtime_ns, self.st_ino, self.st_size = mtime_ns, inode, 1


@pytest.mark.parametrize("odd", [2**40 * 10**9, -(2**40) * 10**9, (1 << 64) - 1])
def test_a_time_that_no_frame_has_is_the_nearest_that_one_has(odd: int) -> None:
    found = outputs._found("a", cast(os.stat_result, Status(odd, abs(odd))), False)
    made = OutputSet(NodeId("main"), 1, 2.0, Listing((found,)))
    assert decode_set(encode_set(made)) == made
    assert abs(found.mtime_ns) >= (1 << 63) - 1 and abs(found.mtime_ns) <= 1 << 63


def test_such_a_time_on_a_disk_that_has_it(tmp_path: Path) -> None:
    shm = Path("/dev/shm")
    if not shm.is_dir():
        pytest.skip("no tmpfs")
    with tempfile.TemporaryDirectory(dir=shm) as folder:
        path = write(Path(folder) / "a")
        os.utime(path, (2**40, 2**40))
        made = OutputSet(NodeId("main"), 1, 2.0, list_files(path.parent))
    assert decode_set(encode_set(made)) == made


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


def test_of_large_files_the_newest_are_kept_and_small_ones_before_them() -> None:
    """As of a script that removes no checkpoint."""
    size = outputs.SMALL_BYTES + 1
    saved = [OutputFile(f"{step:06d}.npz", size, step, 0) for step in range(900, 1200, 100)]
    shorter = OutputFile("000800.npz", size - 1, 800, 0)
    found = within(Listing((file("log", 10), shorter, *saved)), 10 + 2 * size + shorter.bytes)
    assert names(found) == ["000800.npz", "001000.npz", "001100.npz", "log"]
    assert found.skipped == ("000900.npz",)


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
