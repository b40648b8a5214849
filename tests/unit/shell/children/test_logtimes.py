"""What was printed since a time: never less than that, and hardly more."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elasticd.shell.children import logtimes
from elasticd.shell.children.files import ChildFiles
from elasticd.shell.children.logtimes import LogTimes
from elasticd.supervision.logs import RotatedLog
from elasticd.types import JobId

JOB = JobId("j")
LIMIT = 64

# How many words are printed, and what else happens in that second.
SECONDS = st.lists(
    st.tuples(
        st.one_of(st.integers(0, 30), st.integers(0, 90)),
        st.sampled_from(["", "", "", "restart", "daemon"]),
    ),
    max_size=40,
)


@settings(max_examples=50, deadline=None)
@given(SECONDS, st.floats(0, 41), st.sampled_from([256, 4096]))
def test_nothing_that_was_printed_since_is_left_out(
    seconds: list[tuple[int, str]], since: float, most: int
) -> None:
    with tempfile.TemporaryDirectory() as home:
        files = ChildFiles(Path(home))
        numbers = itertools.count()
        printed: dict[bytes, int] = {}
        cut = False
        times, starts = LogTimes(), itertools.count(1)
        log = _log(files, next(starts))
        kept = logtimes.MAX_BYTES
        logtimes.MAX_BYTES = most
        try:
            for second, (count, event) in enumerate(seconds):
                data = [b"%04d" % number for number in itertools.islice(numbers, count)]
                with log.path.open("ab") as file:
                    file.write(b"".join(data))
                printed |= dict.fromkeys(data, second)
                if event == "restart":
                    times.note(log.path, second + 0.5)
                    log = _log(files, next(starts))
                if event == "daemon":
                    times, log = LogTimes(), RotatedLog(log.path, LIMIT, 3)
                if rotated := log.rotate():
                    cut |= rotated.cut_bytes > 0
                    times.rotated(log.path, second + 0.5, cut=rotated.cut_bytes > 0)
                times.note(log.path, second + 0.5)
        finally:
            logtimes.MAX_BYTES = kept
        there = _words(files.printed(JOB, 0, 1 << 20))
        shown = _words(files.printed(JOB, files.printed_before(JOB, since), 1 << 20))
        assert {word for word in there if printed[word] >= since} <= set(shown)
        if most > 256 and not cut:
            # A look a second: what was printed before the look ahead of ``since`` is not shown.
            assert all(printed[word] + 1.5 >= since for word in shown)
        _check_marks(files, there, printed, cut)


def _check_marks(
    files: ChildFiles, there: list[bytes], printed: dict[bytes, int], cut: bool
) -> None:
    """What was there at a time had been printed by then; where nothing is missing, all of it."""
    marks = files.span(JOB, 0.0, None, marked=True).marks
    assert list(marks) == sorted(set(marks)) and len(marks) <= logtimes.MOST_MARKS
    removed = files.dropped(JOB)
    for time, offset in () if cut else marks:
        before = there[: (offset - removed) // 4]
        assert all(printed[word] <= time for word in before)
    assert not marks or marks[-1][1] - removed <= 4 * len(there)


def test_of_many_notes_the_newest_and_some_are_told(tmp_path: Path) -> None:
    files, times = ChildFiles(tmp_path), LogTimes()
    log = _log(files, 1)
    for second in range(1, 2001):
        with log.path.open("ab") as file:
            file.write(b"x")
        times.note(log.path, float(second))
    marks = files.span(JOB, 0.0, None, marked=True).marks
    assert 150 < len(marks) <= logtimes.MOST_MARKS and marks[-1] == (2000.0, 2000)
    assert all(time == offset for time, offset in marks)
    assert files.span(JOB, 0.0, None).marks == ()


def test_however_often_logs_are_rotated_the_notes_have_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logtimes, "MAX_BYTES", 4096)
    files, times, second = ChildFiles(tmp_path), LogTimes(), itertools.count(1)
    notes = files.logs_folder(JOB) / logtimes.FILE_NAME
    for start in range(1, 11):
        log = _log(files, start)
        for _ in range(30):
            with log.path.open("ab") as file:
                file.write(b"x" * (LIMIT + 1))
            times.note(log.path, float(next(second)))
            assert log.rotate() is not None
            times.rotated(log.path, float(next(second)))
            assert notes.stat().st_size <= 4096
        if start < 10:
            for part in files.shown_logs(JOB):
                part.unlink()
    last = float(next(second) - 1)
    assert files.printed_before(JOB, last - 2) == 2 * (LIMIT + 1)
    assert files.printed_before(JOB, last) == 3 * (LIMIT + 1)


def _words(data: bytes) -> list[bytes]:
    return [data[at : at + 4] for at in range(0, len(data), 4)]


def _log(files: ChildFiles, start: int) -> RotatedLog:
    path = files.logs_folder(JOB) / f"{start:013d}-trainer.log"
    log = RotatedLog(path, LIMIT, 3)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return log


def test_notes_of_a_beginning_that_was_cut_off_count_no_more(tmp_path: Path) -> None:
    files, times = ChildFiles(tmp_path), LogTimes()
    log = _log(files, 1)
    log.path.write_bytes(b"x" * 40)
    times.note(log.path, 1.0)
    log.path.write_bytes(b"x" * 40 + b"y" * 1000)
    rotated = log.rotate()
    assert rotated and rotated.cut_bytes == 1040 - 3 * LIMIT
    times.rotated(log.path, 2.0, cut=True)
    log.path.write_bytes(b"z")
    times.note(log.path, 3.0)
    assert files.printed_before(JOB, 1.5) == 0
    assert files.printed_before(JOB, 2.5) == 3 * LIMIT


def test_without_notes_all_is_shown(tmp_path: Path) -> None:
    files = ChildFiles(tmp_path)
    log = _log(files, 1)
    log.path.write_bytes(b"old")
    assert files.printed_before(JOB, 5.0) == 0
    (files.logs_folder(JOB) / logtimes.FILE_NAME).write_text("rubbish\n1 2\nnan nan nan\n1.0 x y\n")
    assert files.printed_before(JOB, 5.0) == 0
