"""docs/protocols.md has one row for every kind of event that is written, and no others."""

from __future__ import annotations

import ast
import importlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

from elasticd.shell.storage.eventform import LAST_EVENTS, NOTABLE
from tests.unit.test_protocols import PAGE, rows

PACKAGE = Path(__file__).parents[2] / "elasticd"
WRITERS = frozenset(("emit", "happened", "tell"))
"""What a function is called that is given the kind of an event first, or second."""
KIND = re.compile(r"[a-z]+(_[a-z]+)+")


def calls() -> Iterator[tuple[Path, ast.Module, ast.Call]]:
    """Each call that may write an event, with its module."""
    for folder in ("core", "shell"):
        for path in (PACKAGE / folder).rglob("*.py"):
            module = ast.parse(path.read_text())
            for call in ast.walk(module):
                if isinstance(call, ast.Call):
                    name = ast.unparse(call.func).rpartition(".")[2]
                    if name.strip("_").lower() in WRITERS:
                        yield path, module, call


def given_to_kind(line: ast.AST) -> list[ast.expr]:
    """What ``kind, text = …`` gives."""
    match line:
        case ast.Assign([ast.Tuple([ast.Name("kind"), _])], value):
            return [value]
        case _:
            return []


def kinds_of(path: Path, module: ast.Module, argument: ast.expr) -> list[str]:
    """Which kinds of events an argument may name: as a text, as a constant, or as ``kind``."""
    match argument:
        case ast.Constant(str(text)) if KIND.fullmatch(text):
            return [text]
        case ast.Name(name) if name.isupper():
            dotted = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
            return [getattr(importlib.import_module(dotted), name)]
        case ast.Name("kind"):
            given = [value for each in ast.walk(module) for value in given_to_kind(each)]
            pairs = [pair for value in given for pair in ast.walk(value)]
            firsts = [pair.elts[0] for pair in pairs if isinstance(pair, ast.Tuple)]
            return [ast.literal_eval(each) for each in firsts]
        case _:
            return []


def fields_of(call: ast.Call) -> set[str]:
    """The fields of an event that a call shows."""
    last = call.args[-1]
    keys = last.keys if isinstance(last, ast.Dict) else []
    shown = [ast.literal_eval(key) for key in keys if key is not None]
    return {*shown, *(each.arg for each in call.keywords if each.arg)} - {"culprit"}


def written() -> dict[str, set[str]]:
    """By kind of event the fields that it is seen to have."""
    found = defaultdict[str, set[str]](set)
    for path, module, call in calls():
        for argument in call.args[:2]:
            for kind in kinds_of(path, module, argument):
                found[kind] |= fields_of(call)
    return found


def told(text: str) -> Counter[str]:
    return Counter(name for name, _ in rows(text, ("Events",)))


def test_every_kind_of_event_has_one_row() -> None:
    assert told(PAGE.read_text()) == Counter(written().keys())
    assert NOTABLE.union(LAST_EVENTS) <= written().keys()


def test_a_row_has_the_fields_of_its_event() -> None:
    named = {name: set(fields or ()) for name, fields in rows(PAGE.read_text(), ("Events",))}
    for kind, fields in written().items():
        assert fields <= named[kind], kind
