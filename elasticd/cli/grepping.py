"""Of what ranks print only the lines that match."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from elasticd.errors import UsageError

MAX_SEARCHED_LINE = 8 * 1024 * 1024
"""In letters. Of a longer line each part of that length is searched by itself."""
_ENDS = re.compile(r"\r\n|\n|\r")

Piece = Mapping[str, Any]


def matching(pieces: Iterable[Piece], pattern: str) -> Iterator[Piece]:
    """The answers of a daemon's log stream, with whole lines that have ``pattern`` in them. A line
    waits for its end, or for :data:`MAX_SEARCHED_LINE`. As on a terminal a carriage return ends a
    line: of a progress bar only those states match that have it.

    Raises:
        UsageError: that is no regular expression.
    """
    try:
        wanted = re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise UsageError(f"--grep {pattern!r} is no regular expression: {error}") from None
    return _matching(pieces, wanted)


@dataclass(slots=True)
class _NodeLines:
    """What one node has begun to print."""

    held: Piece | None = None
    """The beginning of a line."""
    returned: bool = False
    """A carriage return came last: a newline that follows belongs to it."""

    def take(self, piece: Piece) -> list[str]:
        """The lines that end in it."""
        text = str(piece["text"])
        if self.returned and text:
            text = text.removeprefix("\n")
            self.returned = False
        self.returned = self.returned or text.endswith("\r")
        begun = "" if self.held is None else str(self.held["text"])
        if _ENDS.search(text) is None:
            lines, rest = [], begun + text
        else:
            *lines, rest = _ENDS.split(begun + text)
        if len(rest) >= MAX_SEARCHED_LINE:
            lines, rest = [*lines, rest], ""
        self.held = {**piece, "text": rest} if rest else None
        return lines


def _matching(pieces: Iterable[Piece], wanted: re.Pattern[str]) -> Iterator[Piece]:
    nodes: dict[str, _NodeLines] = {}
    for piece in pieces:
        if "text" not in piece:
            yield piece
            continue
        lines = nodes.setdefault(str(piece.get("node")), _NodeLines()).take(piece)
        yield from _those(piece, lines, wanted)
    for held in (node.held for node in nodes.values()):
        if held is not None:
            yield from _those(held, [str(held["text"])], wanted)


def _those(piece: Piece, lines: Iterable[str], wanted: re.Pattern[str]) -> Iterator[Piece]:
    if found := [f"{line}\n" for line in lines if wanted.search(line)]:
        yield {**piece, "text": "".join(found)}
