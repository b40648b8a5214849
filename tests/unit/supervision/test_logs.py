from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticd.supervision.logs import COPY_BYTES, Rotated, RotatedLog


def write(log: RotatedLog, text: str) -> None:
    fd = log.open_append()
    os.write(fd, text.encode())
    os.close(fd)


def read_all(log: RotatedLog) -> str:
    return b"".join(path.read_bytes() for path in log._parts()).decode()


def test_a_writer_goes_on_after_a_rotation(tmp_path: Path) -> None:
    log = RotatedLog(tmp_path / "deep" / "0.log", limit_bytes=10, keep=2)
    fd = log.open_append()
    os.write(fd, b"small\n")
    assert not log.rotate()
    os.write(fd, b"and now large\n")
    assert log.rotate()
    os.write(fd, b"next\n")
    os.close(fd)
    assert log.path.read_bytes() == b"next\n"
    assert (tmp_path / "deep" / "0.log.1").read_bytes() == b"small\nand now large\n"


def test_old_parts_are_kept_up_to_the_limit(tmp_path: Path) -> None:
    log = RotatedLog(tmp_path / "0.log", limit_bytes=6, keep=2)
    for number in range(5):
        write(log, f"part {number}\n")
        assert log.rotate()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.log", "0.log.1", "0.log.2"]
    assert read_all(log) == "part 3\npart 4\n"


def test_keep_none(tmp_path: Path) -> None:
    log = RotatedLog(tmp_path / "0.log", limit_bytes=3, keep=0)
    write(log, "part\n")
    assert log.rotate()
    assert [path.name for path in tmp_path.iterdir()] == ["0.log"]
    write(log, "new\n")
    assert read_all(log) == "new\n"


def test_tail_reaches_into_old_parts_and_shows_binary(tmp_path: Path) -> None:
    log = RotatedLog(tmp_path / "0.log", limit_bytes=3)
    assert log.tail(5) == ""
    for text in ("a\nb\n", "c\nd\n", "e\nlast"):
        log.rotate()
        write(log, text)
    assert log.tail(2) == "e\nlast"
    assert log.tail(4) == "c\nd\ne\nlast"
    assert log.tail(99) == "a\nb\nc\nd\ne\nlast"
    assert log.tail(0) == ""
    assert log.tail(99, limit_bytes=7) == "\ne\nlast"
    (tmp_path / "0.log").write_bytes(b"\xff\x00\n")
    assert log.tail(1) == "\ufffd\x00\n"


def test_a_rotation_that_fails_leaves_nothing_beside(tmp_path: Path) -> None:
    """On a full disk it would take what the journal needs."""
    log = RotatedLog(tmp_path / "0.log", limit_bytes=3)
    write(log, "all of it\n")

    def full() -> AbstractContextManager[Callable[[int], object]]:
        raise OSError("no space left")

    with pytest.raises(OSError):
        log.rotate(full)
    assert [path.name for path in tmp_path.iterdir()] == ["0.log"]
    assert log.path.read_text() == "all of it\n"


class Counted:
    """Counts what goes; ``meanwhile`` is written while parts move."""

    def __init__(self, log: RotatedLog, meanwhile: str = "") -> None:
        self.log, self.meanwhile, self.gone_bytes = log, meanwhile, 0

    @contextmanager
    def dropping(self) -> Iterator[Callable[[int], object]]:
        write(self.log, self.meanwhile)
        yield self.count

    def count(self, size_bytes: int) -> None:
        self.gone_bytes += size_bytes


def parts_of(log: RotatedLog) -> list[bytes]:
    """Oldest first, without the one that is written to."""
    return [path.read_bytes() for path in log._parts() if path != log.path]


@given(st.lists(st.integers(0, 200), max_size=12), st.integers(0, 3))
def test_old_parts_are_bounded_whatever_is_written(sizes: list[int], keep: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        log = RotatedLog(Path(folder) / "0.log", limit_bytes=20, keep=keep)
        counted, wrote = Counted(log), 0
        for size in sizes:
            write(log, "".join(chr(32 + (wrote + at) % 95) for at in range(size)))
            wrote += size
            rotated = log.rotate(counted.dropping)
            parts = parts_of(log)
            assert sum(map(len, parts)) <= (keep + 1) * 20 and len(parts) <= keep
            left = b"".join([*parts, log.path.read_bytes()])
            assert counted.gone_bytes == wrote - len(left)
            if keep and rotated:
                assert parts[-1].endswith(bytes([32 + (wrote - 1) % 95])), "the newest stays"
                assert len(parts[-1]) >= min(size, keep * 20)


def test_what_is_written_while_parts_move_is_carried_over(tmp_path: Path) -> None:
    log = RotatedLog(tmp_path / "0.log", limit_bytes=6, keep=2)
    write(log, "before it\n")
    counted = Counted(log, "after\n")
    assert log.rotate(counted.dropping) == Rotated(0)
    assert parts_of(log) == [b"before it\nafter\n"] and counted.gone_bytes == 0


def test_who_writes_faster_than_is_copied_does_not_hold_the_rotation_up(tmp_path: Path) -> None:
    log = RotatedLog(tmp_path / "0.log", limit_bytes=COPY_BYTES, keep=2)
    write(log, "x" * (COPY_BYTES + 1))
    counted = Counted(log, "y" * 10 * COPY_BYTES)
    assert log.rotate(counted.dropping)
    (part,) = parts_of(log)
    assert len(part) <= 4 * COPY_BYTES and log.path.stat().st_size == 0
    assert counted.gone_bytes == 11 * COPY_BYTES + 1 - len(part)
