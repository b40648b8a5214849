"""A copy is the same file, and its own, whatever the system and the disk can."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from elasticd.train.link.filecopy import CloneFile, clone_on_macos, copy_file, system_clone


class Darwin:
    """The C library of macOS: clonefile(2). The clone has its own blocks from its first write on.

    Attributes:
        refuses: its error, whatever it is asked: ENOTSUP on HFS+, EXDEV between volumes; 0: none.
    """

    def __init__(self, refuses: int = 0) -> None:
        self.refuses = refuses
        self.clones: list[bytes] = []

    def clonefile(self, source: bytes, target: bytes, flags: ctypes.c_uint32) -> int:
        assert isinstance(source, bytes) and isinstance(target, bytes) and flags.value == 0
        error = self.refuses or (errno.EEXIST if os.path.lexists(target) else 0)
        if error:
            ctypes.set_errno(error)
            return -1
        shutil.copyfile(source, target)
        self.clones.append(target)
        return 0


def on_a_mac(darwin: Darwin) -> CloneFile:
    return partial(clone_on_macos, library=darwin)


CLONES: dict[str, Callable[[], CloneFile]] = {
    "here": lambda: system_clone,
    "APFS": lambda: on_a_mac(Darwin()),
    "HFS+": lambda: on_a_mac(Darwin(errno.ENOTSUP)),
    "two volumes": lambda: on_a_mac(Darwin(errno.EXDEV)),
}


@pytest.mark.parametrize("clone", CLONES)
@pytest.mark.parametrize("content", [b"", b"weights\n" * 4096])
def test_a_copy_is_a_file_of_its_own(tmp_path: Path, clone: str, content: bytes) -> None:
    source, target = tmp_path / "Möbel.bin", tmp_path / "own"
    source.write_bytes(content)
    source.chmod(0o640)
    os.utime(source, ns=(10**18, 10**18 + 7_000))
    copy_file(source, target, CLONES[clone]())
    old, new = source.stat(), target.stat()
    assert target.read_bytes() == content
    assert (new.st_mode, new.st_mtime_ns) == (old.st_mode, old.st_mtime_ns)
    assert new.st_ino != old.st_ino
    with target.open("r+b") as file:
        file.write(b"changed")
    assert source.read_bytes() == content


def test_a_mac_clones_where_the_disk_can(tmp_path: Path) -> None:
    source, target, darwin = tmp_path / "a", tmp_path / "b", Darwin()
    source.write_bytes(b"1")
    copy_file(source, target, on_a_mac(darwin))
    assert darwin.clones == [os.fsencode(target)]


def test_a_refusal_says_why_and_of_what(tmp_path: Path) -> None:
    source, target = tmp_path / "a", tmp_path / "b"
    source.write_bytes(b"1")
    with pytest.raises(OSError) as refused:
        clone_on_macos(source, target, Darwin(errno.EXDEV))
    found = refused.value
    assert (found.errno, found.filename, found.filename2) == (
        errno.EXDEV, str(source), str(target),
    )  # fmt: skip
    with pytest.raises(FileExistsError):
        clone_on_macos(source, source, Darwin())
