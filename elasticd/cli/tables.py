"""Tables that fit: what is shown of an id or a number is the whole of it, at any width.

What gives way, in this order:

1. The text of the last column is folded in its column, or, of a table that is ``brief``, cut.
2. It goes below its row.
3. Columns are left out, in the order that the table states. A last line names them.
4. What is left of a row goes below its first cell, with the columns' names.

So a line is wider than the terminal only if a single id is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len, chop_cells

from elasticd.cli.screen import Line
from elasticd.settings.rules import one_line

STATE_STYLES = {
    "alive": "green",
    "running": "green",
    "finished": "green",
    "recovering": "yellow",
    "suspect": "yellow",
    "parked": "yellow",
    "paused": "yellow",
    "draining": "yellow",
    "dead": "red",
    "failed": "red",
    "cancelled": "red",
}

MIN_TEXT = 24
"""A column of text that is narrower is hard to read: the text goes below its row."""
GAP = "  "
INDENT = "  "

Row = Sequence[object]


@dataclass(frozen=True, slots=True)
class Table:
    """Its columns from left to right, and which of them are left out first.

    ``text`` may be the last column, which is folded; ``ids``: its words are never broken;
    ``brief``: it has one line, and what has no room there is left out.
    """

    columns: tuple[str, ...]
    drops: tuple[str, ...] = ()
    text: str = ""
    ids: bool = False
    brief: bool = False


def shown(value: object) -> str:
    """A value as people read it."""
    if value is None or value == "":
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}"
    return one_line(str(value))


def fold(text: str, width: int, *, whole: bool = False) -> list[str]:
    """``text`` in lines of at most ``width``, between words where that is possible; ``whole``: a
    word that is wider stays as it is."""
    if cell_len(text) <= width:
        return [text]
    lines: list[str] = []
    for word in text.split():
        parts = [word] if whole or cell_len(word) <= width else chop_cells(word, width)
        if lines and cell_len(f"{lines[-1]} {parts[0]}") <= width:
            lines[-1] += f" {parts.pop(0)}"
        lines += parts
    return lines


def cut(text: str, width: int) -> str:
    """``text`` without blanks at its end, or as many of its first words as there is room for, and
    an ellipsis. Of a first word that is wider, its beginning."""
    if cell_len(text) <= width:
        return text.rstrip(" ")
    if width <= 2:
        return "…"
    kept = chop_cells(text, width - 1)[0]
    words = kept if text[len(kept)] == " " else kept.rpartition(" ")[0]
    return (words.rstrip() or kept.rstrip()) + "…"


def fitted(table: Table, rows: Sequence[Row], width: int | None) -> list[Line]:
    """The lines of a table, the names of its columns first. ``width`` None: any."""
    return _Layout(table, rows, width).lines()


def within(lines: Sequence[Line], width: int | None) -> list[Line]:
    """The lines of a table for a screen on which nothing wraps: a wider id goes on below."""
    found: list[Line] = []
    for line in lines:
        text = "".join(part for part, _ in line)
        if width is None or cell_len(text) <= width:
            found.append(line)
        else:
            found += [[(part, line[0][1])] for part in fold(text, width)]
    return found


class _Layout:
    def __init__(self, table: Table, rows: Sequence[Row], width: int | None) -> None:
        self._table = table
        self._cells = [dict(zip(table.columns, map(shown, row), strict=True)) for row in rows]
        self._width = width
        self._right = {
            name
            for at, name in enumerate(table.columns)
            if name != table.text and _is_numeric([row[at] for row in rows])
        }
        self._widths = {
            name: max(cell_len(cell) for cell in (name, *(row[name] for row in self._cells)))
            for name in table.columns
        }

    def lines(self) -> list[Line]:
        kept = [name for name in self._table.columns if name != self._table.text]
        if self._width is None:
            return self._in_columns(kept, None)
        room = self._room_for_text(kept)
        dropped: list[str] = []
        for name in self._table.drops:
            if self._total(kept) > self._width:
                kept.remove(name)
                dropped.append(name)
        if self._total(kept) > self._width:
            lines = self._stacked(kept)
        else:
            lines = self._in_columns(kept, room)
        if dropped:
            text = f"(too narrow for {', '.join(name.upper() for name in dropped)})"
            lines += [[(line, "dim")] for line in fold(text, self._width)]
        return lines

    def _total(self, names: Sequence[str]) -> int:
        return sum(self._widths[name] for name in names) + len(GAP) * (len(names) - 1)

    def _room_for_text(self, kept: Sequence[str]) -> int:
        """The width of the column of text; 0: it goes below its row."""
        text, width = self._table.text, self._width
        if not text or width is None:
            return 0
        room = min(width - self._total(kept) - len(GAP), self._widths[text])
        words = [word for row in self._cells for word in row[text].split()]
        longest = max(map(cell_len, words), default=0) if self._table.ids else 0
        return room if room >= min(self._widths[text], max(MIN_TEXT, longest)) else 0

    def _in_columns(self, kept: Sequence[str], room: int | None) -> list[Line]:
        """``room``: for the text; 0: none, None: any."""
        text = self._table.text
        with_text = bool(text) and room != 0
        names = [*kept, text] if with_text else list(kept)
        lines = [self._line(names, {name: name.upper() for name in names}, "bold")]
        for row in self._cells:
            if not with_text or room is None:
                lines.append(self._line(names, row))
                lines += [] if with_text else self._below(row)
                continue
            for at, part in enumerate(self._folded(row[text], room)):
                blank = dict.fromkeys(kept, "")
                lines.append(self._line(names, {**(blank if at else row), text: part}))
        return lines

    def _folded(self, text: str, width: int) -> list[str]:
        if self._table.brief:
            return [cut(text, width)]
        return fold(text, width, whole=self._table.ids)

    def _below(self, row: dict[str, str]) -> list[Line]:
        text, width = self._table.text, self._width
        if not text or width is None or row[text] == "-":
            return []
        parts = self._folded(row[text], width - len(INDENT))
        return [
            [(part if cell_len(INDENT + part) > width else INDENT + part, "")] for part in parts
        ]

    def _stacked(self, kept: Sequence[str]) -> list[Line]:
        assert self._width is not None
        first, *others = kept
        lines: list[Line] = []
        for row in self._cells:
            lines.append([(row[first], "bold")])
            packed = ""
            for name in others:
                cell = f"{name} {row[name]}"
                if cell_len(INDENT + cell) > self._width:
                    cell = row[name]
                joined = f"{packed}{GAP}{cell}" if packed else INDENT + cell
                if packed and cell_len(joined) > self._width:
                    lines.append([(packed, "")])
                    joined = INDENT + cell
                packed = joined if cell_len(joined) <= self._width else cell
            lines += [[(packed, "")]] if packed else []
            lines += self._below(row)
        return lines

    def _line(self, names: Sequence[str], cells: dict[str, str], style: str = "") -> Line:
        line: Line = []
        for at, name in enumerate(names):
            cell = cells[name]
            blank = " " * (self._widths[name] - cell_len(cell))
            before = (GAP if at else "") + (blank if name in self._right else "")
            behind = "" if name in self._right else blank
            line += [(before, ""), (cell, style or STATE_STYLES.get(cell, "")), (behind, "")]
        while line and not line[-1][0].strip(" "):
            line.pop()
        return line


def _is_numeric(values: Sequence[object]) -> bool:
    kept = [value for value in values if value is not None]
    return bool(kept) and all(
        isinstance(value, int | float) and not isinstance(value, bool) for value in kept
    )
