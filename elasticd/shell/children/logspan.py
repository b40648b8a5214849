"""Which part of what a job's ranks printed on a node is wanted, found from its end backwards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from typing import Self

PIECE_BYTES = 256 * 1024
"""Read at once."""
TAIL_LINE_BYTES = 256 * 1024
"""So much, times the lines, is looked through for the last lines; longer ones are cut."""

Marks = tuple[tuple[float, int], ...]
"""Unix times, each with the offset of the first byte that was printed later."""
Read = Callable[[int, int], bytes]
"""Given an offset and a length, what is there; less than that if it has been removed since."""


@dataclass(frozen=True, slots=True)
class LogSpan:
    """From the offset ``start`` to ``end``, where the log ended when it was looked at."""

    start: int
    end: int | None
    """None: an earlier version of the daemon, which doesn't say."""
    left_out: str = ""
    """What was asked for and is not in it; empty if nothing is known to be."""
    marks: Marks = ()
    """How long the log was when, upwards; empty: that was not asked, or is not known."""

    def encoded(self) -> bytes:
        said = f"{self.start} {self.end}\n{self.left_out}"
        marks = " ".join(f"{time:.3f} {offset}" for time, offset in self.marks)
        return f"{said}\0{marks}".encode() if marks else said.encode()

    @classmethod
    def decoded(cls, data: bytes) -> Self:
        """Also of an earlier version, which says the start alone.

        Raises:
            ValueError: it is none.
        """
        said, _, marked = data.decode("utf-8", "replace").partition("\0")
        numbers, _, left_out = said.partition("\n")
        start, *end = map(int, numbers.split(" "))
        words = marked.split()
        pairs = zip(map(float, words[::2]), map(int, words[1::2]), strict=False)
        marks = tuple((time, offset) for time, offset in pairs if isfinite(time))
        return cls(start, end[0] if end else None, left_out, marks)


def tail_start(read: Read, start: int, end: int, lines: int) -> tuple[int, bool] | None:
    """Where the last ``lines`` lines before ``end`` begin, ``start`` at the earliest; a last line
    without its end counts as one. And whether they are longer than is looked through. None: what
    is read was removed meanwhile."""
    floor = max(start, end - lines * TAIL_LINE_BYTES)
    at, found = end, 0
    while at > floor:
        begin = max(floor, at - PIECE_BYTES)
        piece = read(begin, at - begin)
        if len(piece) < at - begin:
            return None
        # The last byte of all may end the last line; it begins none.
        before = len(piece) - (at == end)
        while (newline := piece.rfind(b"\n", 0, before)) >= 0:
            found += 1
            if found == lines:
                return begin + newline + 1, False
            before = newline
        at = begin
    return at, start < at < end
