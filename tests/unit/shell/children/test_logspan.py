"""The last lines are found from the end, whatever lies before them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticd.shell.children import logspan
from elasticd.shell.children.logspan import LogSpan, tail_start


class Printed:
    """A log in memory that counts what is read of it."""

    def __init__(self, data: bytes, removed: int = 0) -> None:
        self.data, self.removed, self.read_bytes = data, removed, 0

    def read(self, offset: int, limit: int) -> bytes:
        assert limit <= logspan.PIECE_BYTES
        if offset < self.removed:
            return b""
        self.read_bytes += limit
        return self.data[offset : offset + limit]

    def tail(self, lines: int, start: int = 0) -> tuple[bytes, bool]:
        found = tail_start(self.read, start, len(self.data), lines)
        assert found is not None
        return self.data[found[0] :], found[1]


@pytest.fixture(autouse=True)
def pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logspan, "PIECE_BYTES", 3)
    monkeypatch.setattr(logspan, "TAIL_LINE_BYTES", 100)


@given(st.text("ab\n", max_size=60).map(str.encode), st.integers(0, 5), st.integers(0, 60))
def test_the_last_lines(data: bytes, count: int, start: int) -> None:
    start = min(start, len(data))
    lines = data[start:].splitlines(keepends=True)
    wanted = b"".join(lines[-count:] if count else [])
    assert Printed(data).tail(count, start) == (wanted, False)


def test_no_more_is_read_than_the_lines_take() -> None:
    log = Printed(b"line\n" * 10_000)
    assert log.tail(2) == (b"line\nline\n", False)
    assert log.read_bytes <= 12


@pytest.mark.parametrize(("end", "lines"), [(b"", 1), (b"\n", 1), (b"\nshort\n", 2)])
def test_of_a_line_that_is_too_long_only_its_end(end: bytes, lines: int) -> None:
    log = Printed(b"x" * 5000 + end)
    shown, cut = log.tail(lines)
    assert cut and len(shown) == lines * 100 and shown.endswith(end)
    assert log.read_bytes == len(shown)


def test_what_is_removed_meanwhile_is_told() -> None:
    log = Printed(b"one\ntwo\nthree", removed=8)
    assert tail_start(log.read, 0, 13, 2) is None


@pytest.mark.parametrize("left_out", ["", "a line\nand another"])
def test_it_travels(left_out: str) -> None:
    span = LogSpan(3, 70, left_out)
    assert LogSpan.decoded(span.encoded()) == span


def test_when_it_was_how_long_travels() -> None:
    span = LogSpan(3, 70, "x\ny", ((1.5, 7), (1764228000.125, 70)))
    assert LogSpan.decoded(span.encoded()) == span


def test_times_that_are_none_are_left_out() -> None:
    assert LogSpan.decoded(b"3 70\n\0nan 5 7.0 6 inf 9 8.0").marks == ((7.0, 6),)


def test_an_earlier_daemon_says_the_start_alone() -> None:
    assert LogSpan.decoded(b"12") == LogSpan(12, None)
