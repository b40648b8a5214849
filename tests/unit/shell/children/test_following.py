"""Who follows a log sees each byte once, whatever is rotated away or removed meanwhile."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from elasticd.shell.children.files import ChildFiles
from elasticd.shell.children.logspan import TAIL_LINE_BYTES
from elasticd.supervision.logs import RotatedLog
from elasticd.types import JobId

JOB = JobId("j")


class Follower:
    """Reads as ``elasticctl logs -f`` does."""

    def __init__(self, files: ChildFiles, counted: bool = True) -> None:
        self.files, self.counted = files, counted
        self.offset = files.printed_before(JOB, 0.0, counted)
        self.seen = b""

    def read(self) -> None:
        while data := self.files.printed(JOB, self.offset, 7, self.counted):
            self.seen += data
            self.offset += len(data)
        self.offset = max(self.offset, self.files.printed_before(JOB, 0.0, self.counted))


def printed(files: ChildFiles, log: RotatedLog, first: int, count: int) -> bytes:
    text = b"".join(b"%04d " % number for number in range(first, first + count))
    with log.path.open("ab") as file:
        file.write(text)
    log.rotate(partial(files.dropping, JOB))
    return text


@pytest.fixture
def files(tmp_path: Path) -> ChildFiles:
    files = ChildFiles(tmp_path)
    files.logs_folder(JOB).mkdir(parents=True)
    return files


def log_of(files: ChildFiles, keep: int = 2) -> RotatedLog:
    return RotatedLog(files.logs_folder(JOB) / "0000000000001-trainer.log", 20, keep)


@pytest.mark.parametrize("keep", [1, 2])
def test_who_keeps_up_sees_everything_once(files: ChildFiles, keep: int) -> None:
    log, follower = log_of(files, keep), Follower(files)
    text = b""
    for first in range(0, 90, 3):
        text += printed(files, log, first, 3)
        follower.read()
    assert follower.seen == text


def test_who_falls_behind_misses_what_is_gone_and_sees_the_rest_once(files: ChildFiles) -> None:
    log, follower = log_of(files), Follower(files)
    text = printed(files, log, 0, 3)
    follower.read()
    for first in range(3, 60, 3):
        text += printed(files, log, first, 3)
    follower.read()
    assert follower.seen == text[:15], "it learns where what is left begins"
    follower.read()
    assert text.endswith(follower.seen[15:]) and len(follower.seen) > 15
    last = printed(files, log, 60, 1)
    follower.read()
    assert follower.seen.endswith(last) and follower.seen.count(last) == 1


def test_who_begins_late_begins_with_what_is_left(files: ChildFiles) -> None:
    log = log_of(files)
    text = b"".join(printed(files, log, first, 3) for first in range(0, 60, 3))
    follower = Follower(files)
    follower.read()
    assert follower.seen and text.endswith(follower.seen)
    assert follower.offset == len(text)


def test_an_earlier_daemon_counts_what_is_left_alone(files: ChildFiles) -> None:
    log = log_of(files)
    text = b"".join(printed(files, log, first, 3) for first in range(0, 60, 3))
    follower = Follower(files, counted=False)
    follower.read()
    assert follower.seen and text.endswith(follower.seen)
    assert follower.offset == len(follower.seen)


def test_the_last_lines_of_a_log_with_older_parts(files: ChildFiles) -> None:
    log = log_of(files)
    for number in range(30):
        with log.path.open("ab") as file:
            file.write(b"line %02d\n" % number)
        log.rotate(partial(files.dropping, JOB))
    first = files.dropped(JOB) // 8
    for lines, left_out in ((0, False), (1, False), (4, False), (99, True)):
        span = files.span(JOB, 0.0, lines)
        assert span.end == 30 * 8 and bool(span.left_out) == left_out
        shown = files.printed(JOB, span.start, 1000, counted=True)
        last = [b"line %02d\n" % number for number in range(max(first, 30 - lines), 30)]
        assert shown == b"".join(last), lines
    assert files.span(JOB, 0.0, None).start == files.dropped(JOB) > 0


def test_one_long_line_is_cut_and_that_is_told(files: ChildFiles) -> None:
    path = files.logs_folder(JOB) / "0000000000001-trainer.log"
    path.write_bytes(b"x" * 3_000_000)
    span = files.span(JOB, 0.0, 2)
    assert span.start == 3_000_000 - 2 * TAIL_LINE_BYTES
    assert span.left_out == "so long are its lines that only the last 524288 bytes are shown"
