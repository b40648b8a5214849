"""The last lines, in whatever pieces they come."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from elasticd.shell.control.logtail import Tail


@given(st.lists(st.text("ab\n", max_size=6).map(str.encode), max_size=12), st.integers(0, 5))
def test_the_last_lines(pieces: list[bytes], count: int) -> None:
    tail = Tail(count)
    for piece in pieces:
        tail.add(piece)
    lines = b"".join(pieces).splitlines(keepends=True)
    assert tail.take() == b"".join(lines[-count:] if count else [])
