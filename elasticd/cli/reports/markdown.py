"""A report as Markdown. All that a job has said is escaped: it is text, no markup and no link."""

from __future__ import annotations

import re
from typing import assert_never

from elasticd.cli.reports.paper import (
    Block,
    Chart,
    CourseChart,
    Note,
    Paper,
    Sheet,
    Verbatim,
)
from elasticd.cli.tables import shown

_MARKUP = re.compile(r"([\\`*_\[\]|~@$])")
_ADDRESS = re.compile(r"(?i)(:(?=//)|(?<=www)\.)")
"""What makes a link of bare text."""


def page(paper: Paper) -> str:
    """The whole file."""
    parts = [f"# {escaped(paper.title)}"]
    for chapter in paper.chapters:
        parts.append(f"## {escaped(chapter.title)}")
        parts += [_block(block) for block in chapter.blocks]
    return "\n\n".join(parts) + "\n"


def escaped(text: str) -> str:
    """Text on one line that no reader of Markdown takes for anything else."""
    text = " ".join(text.splitlines())
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _ADDRESS.sub(r"\\\1", _MARKUP.sub(r"\\\1", text))


def _paragraph(text: str) -> str:
    # What would be a heading or a list at the beginning of a line.
    return re.sub(r"^(\d+(?=[.)](?:\s|$))|(?=[#+=-]))(.)", r"\1\\\2", escaped(text).strip())


def _block(block: Block) -> str:
    match block:
        case Note(text):
            return _paragraph(text)
        case Verbatim(text):
            return "\n".join(f"    {line}" for line in text.splitlines())
        case Sheet():
            return _sheet(block)
        case Chart():
            return f"{escaped(block.title)}: {escaped(block.said)}"
        case CourseChart():
            return escaped(block.said)
        case _:
            assert_never(block)


def _sheet(sheet: Sheet) -> str:
    lines = [_row(sheet.columns), _row(("---",) * len(sheet.columns), verbatim=True)]
    lines += [_row(tuple(shown(cell) for cell in row)) for row in sheet.rows]
    if sheet.left_out:
        lines += ["", f"{sheet.left_out} earlier rows are left out."]
    return "\n".join(lines)


def _row(cells: tuple[str, ...], *, verbatim: bool = False) -> str:
    return f"| {' | '.join(cell if verbatim else escaped(cell) for cell in cells)} |"
