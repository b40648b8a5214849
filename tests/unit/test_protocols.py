"""docs/protocols.md has one row for every word that a process says to another, and no others."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from elasticd.core.words.codec import Words
from tests.unit.core.words.conversations import CONVERSATIONS

PAGE = Path(__file__).parents[2] / "docs/protocols.md"
TABLES: dict[tuple[str, ...], tuple[str, ...]] = {
    ("FROM_ANY_CHILD",): ("Any child says",),
    ("TO_ANY_CHILD",): ("Any child is told",),
    ("FROM_REDUCER",): ("A reducer says",),
    ("TO_REDUCER",): ("A reducer is told",),
    ("FROM_TRAINER",): ("A trainer says",),
    ("TO_TRAINER",): ("A trainer is told",),
    ("REQUESTS",): ("What can be asked",),
    ("CONNECTION", "FETCH", "OF_FETCH", "ASIDE"): ("Connections",),
    ("FROM_GUEST", "TO_GUEST"): ("Joining",),
    ("FROM_RENEWER", "TO_RENEWER"): ("Renewing",),
    ("DAEMONS",): (
        "Views", "Jobs and nodes", "What a member tells the leader",
        "What the leader tells a member", "Checkpoints",
    ),
    ("WANTS",): ("Bulk data",),
}  # fmt: skip
"""Under which headings the words of which conversations stand. A word of several stands under the
first of them."""
CODE = re.compile(r"`((?:[^`{]|\{[^`]*\})+)`")


def cells(text: str) -> Iterator[tuple[str, str]]:
    """The heading, and the first cell of each row of the tables below it, without their heads."""
    heading, lines = "", text.splitlines()
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if line.startswith("#"):
            heading = line.lstrip("# ")
        elif line.startswith("| ") and not (
            line.startswith("| ---") or following.startswith("| ---")
        ):
            yield heading, re.split(r"(?<!\\) \| ", line[2:])[0]


def rows(text: str, headings: tuple[str, ...]) -> Iterator[tuple[str, list[str] | None]]:
    """Each word's name and, where its row has them, the names of its fields."""
    for heading, cell in cells(text):
        if heading in headings:
            for code in CODE.findall(cell):
                name, brace, inside = code.partition("{")
                yield name.strip() or code, fields(inside[:-1]) if brace else None


def fields(inside: str) -> list[str]:
    """Of ``a, b: [x, y], fds: 2`` the names, without the descriptors."""
    while (flat := re.sub(r"\[[^][]*\]|\{[^{}]*\}|\"[^\"]*\"", "", inside)) != inside:
        inside = flat
    names = [re.match(r"\s*(\w*)", part) for part in inside.split(",")]
    return [name[1] for name in names if name and name[1] not in ("", "fds")]


def name_of(words: Words[Any], kind: type[Any]) -> str:
    """A word without a name is known by what it says."""
    own = ", ".join(field.name for field in dataclasses.fields(kind))
    return str(getattr(kind, "kind", kind.__name__)) if words.key else f"{{{own}}}"


def kinds() -> Iterator[tuple[tuple[str, ...], str, type[Any]]]:
    """The headings, the name and the class of each word, once."""
    seen: set[type[Any]] = set()
    for names, headings in TABLES.items():
        for words in (CONVERSATIONS[name] for name in names):
            for kind in words.kinds:
                if kind not in seen:
                    seen.add(kind)
                    yield headings, name_of(words, kind), kind


def wrong(text: str) -> list[str]:
    """What is missing in the page, or too much."""
    found = []
    for headings in TABLES.values():
        there = Counter(name for name, _ in rows(text, headings))
        wanted = Counter(name for under, name, _ in kinds() if under == headings)
        found += [f"{', '.join(headings)}: no row for {name}" for name in wanted - there]
        found += [f"{', '.join(headings)}: a row too many for {name}" for name in there - wanted]
    return found


def test_every_conversation_has_its_tables() -> None:
    assert {name for names in TABLES for name in names} == set(CONVERSATIONS)


def test_every_word_has_one_row() -> None:
    assert wrong(PAGE.read_text()) == []


def test_a_row_that_is_missing_or_there_twice_is_noticed() -> None:
    text = PAGE.read_text()
    for line in text.splitlines(keepends=True):
        if line.startswith(("| `Vouch`", "| `bye {", "| `ready {", "| `{bytes}`", "| `log` |")):
            assert len(wrong(text.replace(line, ""))) == 1, line
            assert len(wrong(text.replace(line, line * 2))) == 1, line


@pytest.mark.parametrize("headings", TABLES.values(), ids=lambda headings: headings[0])
def test_the_fields_that_a_row_names_are_those_that_there_are(headings: tuple[str, ...]) -> None:
    named = {name: told for name, told in rows(PAGE.read_text(), headings) if told is not None}
    for under, name, kind in kinds():
        if under == headings and name in named and not name.startswith("{"):
            own = {field.name for field in dataclasses.fields(kind)}
            shared = name in ("chaos",)  # two words of that name
            assert shared or set(named[name]) == own, name
