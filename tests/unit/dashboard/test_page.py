"""The page's own files: nothing foreign, nothing that makes markup of text, and not much of it."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import elasticd.dashboard
from elasticd.dashboard.server import CHANGES, PAGE

FOLDER = Path(elasticd.dashboard.__file__).with_name("page")
FILES = {path.name: path.read_text() for path in FOLDER.iterdir()}


def test_what_is_served_is_there_and_all_of_it() -> None:
    assert {name for name, _ in PAGE.values()} == set(FILES)
    assert sum(len(text) for text in FILES.values()) < 300_000


def test_nothing_comes_from_elsewhere() -> None:
    for name, text in FILES.items():
        addresses = set(re.findall(r"(?:https?:)?//[\w.-]+\.\w+[^\s\"')]*", text))
        assert addresses <= {"http://www.w3.org/2000/svg"}, name


def test_no_text_is_made_markup_and_no_script_is_in_the_markup() -> None:
    makes = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|eval\(|Function\("
    for name in ("page.js", "drawing.js"):
        assert not re.search(makes, FILES[name]), name
    assert not re.search(r"\son\w+=|\sstyle=|javascript:", FILES["index.html"])


class Parts(HTMLParser):
    """The ids, what refers to one, and the changes that a page asks for."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.refers: set[str] = set()
        self.does: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {key: value or "" for key, value in attrs}
        self.ids += [found["id"]] if "id" in found else []
        self.refers |= {found[key] for key in ("for", "aria-labelledby") if key in found}
        self.refers |= {found["href"][1:]} if found.get("href", "").startswith("#") else set()
        self.does |= {found["data-do"]} if "data-do" in found else set()


def test_names_that_are_used_are_there() -> None:
    parts = Parts()
    parts.feed(FILES["index.html"])
    assert len(set(parts.ids)) == len(parts.ids)
    used = set(re.findall(r"\bat\(\"([\w-]+)\"\)", FILES["page.js"]))
    assert parts.refers | used <= set(parts.ids)
    assert parts.does == {"pause", "resume", "cancel"} < set(CHANGES)
