"""What reaches the medium, on Linux and by a Mac's call."""

from __future__ import annotations

import errno
import fcntl
import sys
from typing import Any

import pytest

from elasticd.checkpoints.medium import order_file, sync_file


@pytest.mark.parametrize(
    ("here", "knows", "done"),
    [("darwin", True, ["full"]), ("darwin", False, ["fsync"]), ("linux", True, ["fsync"])],
)
def test_what_reaches_the_medium_on_each_system(here: str, knows: bool, done: list[str]) -> None:
    """Network and some removable disks of a Mac know no full flush."""
    did = list[str]()

    def control(fd: int, wanted: int) -> int:
        assert (fd, wanted) == (7, 51)
        if not knows:
            raise OSError(errno.ENOTSUP, "Operation not supported")
        did.append("full")
        return 0

    def sync(fd: int) -> None:
        did.append("fsync")

    sync_file(7, here, control, sync)
    assert did == done


@pytest.mark.parametrize(
    ("here", "known", "done"),
    [
        ("darwin", {85, 51}, [85]),
        ("darwin", {51}, [51]),
        ("darwin", set(), ["fsync"]),
        ("linux", {85, 51}, ["fsync"]),
    ],
)
def test_what_keeps_the_order_on_each_system(here: str, known: set[int], done: list[Any]) -> None:
    did: list[Any] = []

    def control(fd: int, wanted: int) -> int:
        if wanted not in known:
            raise OSError(errno.ENOTTY, "Inappropriate ioctl for device")
        did.append(wanted)
        return 0

    order_file(7, here, control, lambda fd: did.append("fsync"))
    assert did == done


@pytest.mark.skipif(sys.platform != "darwin", reason="asks macOS")
def test_macos_calls_it_so() -> None:
    assert getattr(fcntl, "F_FULLFSYNC") == 51  # noqa: B009
    assert getattr(fcntl, "F_BARRIERFSYNC", 85) == 85


@pytest.mark.parametrize("here", ["darwin", "linux"])
def test_a_device_that_fails_is_told_on_each_system(here: str) -> None:
    def control(fd: int, wanted: int) -> int:
        raise OSError(5, "Input/output error")

    def sync(fd: int) -> None:
        control(fd, 0)

    with pytest.raises(OSError, match="Input/output error"):
        sync_file(7, here, control, sync)


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("call", [sync_file, order_file])
def test_a_full_flush_that_fails_is_not_taken_for_a_good_one(code: int, call: Any) -> None:
    """The error is told once: an fsync behind it may say that all is well."""

    def control(fd: int, wanted: int) -> int:
        raise OSError(code, "it failed")

    def sync(fd: int) -> None:
        raise AssertionError("it must not be asked")

    with pytest.raises(OSError, match="it failed") as caught:
        call(7, "darwin", control, sync)
    assert caught.value.errno == code
