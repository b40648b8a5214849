"""No message puts into a command by hand what a shell may take otherwise: the path of the home has
a space on a Mac. ``elasticd.pasting`` quotes it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("elasticd", "recovery", "checkpoints", "systemd-like", "launchd")
PASTING = ROOT / "elasticd/pasting.py"
BEGUN = re.compile(
    r"(^|[\s'(])(elasticctl [a-z]+|elasticd run|sudo|rm|cp|mv|ln|cat|tail|chmod|chown|kill|mkdir"
    r"|tar|scp|diskutil|find -\w+|jupyter) ([^'.:;,()]* )?$"
)
"""How a text ends in which a command has begun, and a word of it is to come."""
GOES_ON = re.compile(r" (-m|cluster) ")
"""How a text goes on behind a program."""
QUOTING = ("pasted", "quoted", "of_home", "word", "quote")
NAMES = {"job", "named", "node", "id", "pid"}
"""Of jobs, nodes and processes: they have no letter that a shell takes otherwise."""


def by_hand(source: str) -> Iterator[tuple[int, str]]:
    """The line, and what is put into a command as it is."""
    texts = (each for each in ast.walk(ast.parse(source)) if isinstance(each, ast.JoinedStr))
    for text in texts:
        before = ""
        for part, behind in zip(text.values, [*text.values[1:], None], strict=True):
            if isinstance(part, ast.FormattedValue):
                if is_word(before, behind) and not is_taken(part.value, before):
                    yield part.lineno, ast.unparse(part.value)
                before += "X"
            elif isinstance(part, ast.Constant):
                before += str(part.value)


def is_word(before: str, behind: ast.expr | None) -> bool:
    goes_on = isinstance(behind, ast.Constant) and GOES_ON.match(str(behind.value))
    return BEGUN.search(before) is not None or bool(goes_on)


def is_taken(value: ast.expr, before: str) -> bool:
    """Whether the shell takes it as it is meant. Quotes stand in no others."""
    if isinstance(value, ast.Call):
        return ast.unparse(value.func) in QUOTING and not before.endswith("'")
    last = ast.unparse(value).rpartition(".")[2]
    return last in NAMES or last.isupper()


def test_commands_in_messages_are_quoted_in_one_place() -> None:
    files = {path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")} - {PASTING}
    assert len(files) > 200
    found = {
        f"{path.relative_to(ROOT)}:{line}": value
        for path in files
        for line, value in by_hand(path.read_text())
    }
    assert not found, "let elasticd.pasting have these words"


@pytest.mark.parametrize(
    "message",
    [
        'f"Remove it: rm {home / FILE}"',
        "f\"start it: 'elasticctl local up {home}'\"",
        'f"elasticctl optimize {path} --write"',
        'f"say (chmod -R 700 {folder})"',
        'f"{sys.executable} -m pip install mlx"',
        'f"find -L {folder}/ -type l"',
    ],
)
def test_what_is_put_in_by_hand_is_found(message: str) -> None:
    assert len([*by_hand(message)]) == 1


@pytest.mark.parametrize(
    "message",
    [
        'f"elasticctl cancel {job}"',
        'f"elasticctl drain {each.node}"',
        "f\"Remove it: {quoted('rm', home)}\"",
        'f"let it in: sudo {FIREWALL} --add"',
        'f"find all of {path}"',
        'f"the last elasticd of {home}"',
    ],
)
def test_what_a_shell_takes_is_left_alone(message: str) -> None:
    assert not [*by_hand(message)]
