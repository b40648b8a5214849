"""A report as one HTML file: no script, nothing from elsewhere. Built as a tree, which escapes."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import assert_never

from elasticd.cli.reports import drawing
from elasticd.cli.reports.paper import (
    Block,
    Cell,
    Chart,
    CourseChart,
    Note,
    Paper,
    Sheet,
    Verbatim,
)
from elasticd.cli.tables import shown

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""Should some text become markup all the same, it could load and run nothing."""
_STYLE = """
:root { color-scheme: light dark; --ink: #1b1b1b; --dim: #5c5c5c; --paper: #fff; --rule: #d6d6d6;
  --training: #2f7d4f; --detection: #b3261e; --regrouping: #c77700; --parked: #7a4fa3;
  --waiting: #9aa0a6; --paused: #5b7fa8; --curve: #1f5fa8; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8e8e8; --dim: #a8a8a8; --paper: #16181a;
  --rule: #3a3d40; --training: #57b37c; --detection: #ff6b5e; --regrouping: #f0a63a;
  --parked: #b08ad6; --waiting: #6f757b; --paused: #7fa6d1; --curve: #7db4f5; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem; max-width: 62rem; background: var(--paper);
  color: var(--ink); font: 15px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
h3 { font-size: 1rem; margin: 1rem 0 .25rem; }
.wide { overflow-x: auto; } .small { display: inline-block; vertical-align: top; width: 49%;
  padding-right: 1rem; font-size: .85rem; } .small svg text { font-size: 20px; }
@media (max-width: 40rem) { .small { width: 100%; } }
table { border-collapse: collapse; font-size: .9rem; }
th, td { text-align: left; vertical-align: top; padding: .25rem .75rem .25rem 0;
  border-bottom: 1px solid var(--rule); overflow-wrap: break-word; }
td.n { text-align: right; font-variant-numeric: tabular-nums; }
pre { white-space: pre-wrap; font-size: .85rem; padding: .75rem; border: 1px solid var(--rule); }
svg { width: 100%; height: auto; display: block; } svg text { font-size: 11px; fill: var(--dim); }
.curve { fill: none; stroke: var(--curve); stroke-width: 1.5; } .grid { stroke: var(--rule); }
.fault { fill: var(--detection); } rect.training { fill: var(--training); }
rect.detection { fill: var(--detection); } rect.regrouping { fill: var(--regrouping); }
rect.parked { fill: var(--parked); } rect.waiting { fill: var(--waiting); }
rect.paused { fill: var(--paused); } .legend { display: flex; flex-wrap: wrap; gap: .25rem 1rem;
  padding: 0; list-style: none; font-size: .9rem; color: var(--dim); }
.legend svg { display: inline; width: .8rem; margin-right: .3rem; }
@media print { :root { color-scheme: light; --ink: #000; --dim: #444; --paper: #fff; --rule: #bbb;
  --training: #2f7d4f; --detection: #b3261e; --regrouping: #c77700; --parked: #7a4fa3;
  --waiting: #9aa0a6; --paused: #5b7fa8; --curve: #1f5fa8; }
  body { max-width: none; padding: 0; font-size: 10pt; } .wide { overflow: visible; }
  h2, h3 { break-after: avoid; } tr, svg, .small { break-inside: avoid; }
  thead { display: table-header-group; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; } }
"""


def page(paper: Paper) -> str:
    """The whole file."""
    root = ET.Element("html", {"lang": "en"})
    head = ET.SubElement(root, "head")
    ET.SubElement(head, "meta", {"charset": "utf-8"})
    policy = {"http-equiv": "Content-Security-Policy", "content": _POLICY}
    ET.SubElement(head, "meta", policy)
    view = {"name": "viewport", "content": "width=device-width, initial-scale=1"}
    ET.SubElement(head, "meta", view)
    _add(head, "title", paper.title)
    _add(head, "style", _STYLE)
    main = ET.SubElement(ET.SubElement(root, "body"), "main")
    _add(main, "h1", paper.title)
    for chapter in paper.chapters:
        section = ET.SubElement(main, "section")
        _add(section, "h2", chapter.title)
        for block in chapter.blocks:
            _block(section, block)
    text = ET.tostring(root, encoding="unicode", method="html")
    return f"<!DOCTYPE html>\n{text}\n"


def _block(section: ET.Element, block: Block) -> None:
    match block:
        case Note(text):
            _add(section, "p", text)
        case Verbatim(text):
            _add(section, "pre", text)
        case Sheet():
            _sheet(section, block)
        case Chart():
            part = ET.SubElement(section, "div", {"class": "small" if block.small else "chart"})
            _add(part, "h3", block.title)
            part.append(drawing.line_chart(block))
            _add(part, "p", block.said)
        case CourseChart():
            section.append(drawing.course_chart(block))
            _legend(section, {each.kind for each in block.stretches})
        case _:
            assert_never(block)


def _sheet(section: ET.Element, sheet: Sheet) -> None:
    table = ET.SubElement(ET.SubElement(section, "div", {"class": "wide"}), "table")
    if any(sheet.columns):
        heads = ET.SubElement(ET.SubElement(table, "thead"), "tr")
        for column in sheet.columns:
            _add(heads, "th", column).set("scope", "col")
    body = ET.SubElement(table, "tbody")
    for row in sheet.rows:
        line = ET.SubElement(body, "tr")
        for at, cell in enumerate(row):
            if not any(sheet.columns) and at == 0:
                _add(line, "th", shown(cell)).set("scope", "row")
            else:
                _cell(line, cell)
    if sheet.left_out:
        _add(section, "p", f"{sheet.left_out} earlier rows are left out.")


def _cell(line: ET.Element, cell: Cell) -> None:
    made = _add(line, "td", shown(cell))
    if isinstance(cell, int | float):
        made.set("class", "n")


def _legend(section: ET.Element, kinds: set[str]) -> None:
    listed = ET.SubElement(section, "ul", {"class": "legend"})
    for kind, said in drawing.LEGEND:
        if kind in kinds:
            item = ET.SubElement(listed, "li")
            patch = ET.SubElement(item, "svg", {"viewBox": "0 0 10 10", "aria-hidden": "true"})
            ET.SubElement(patch, "rect", {"width": "10", "height": "10", "class": kind})
            patch.tail = said


def _add(parent: ET.Element, tag: str, text: str) -> ET.Element:
    element = ET.SubElement(parent, tag)
    element.text = text
    return element
