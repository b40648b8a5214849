"""No ``match`` forgets a case: each ends with ``assert_never``, and the type checker does the rest.

A kind that is added to a union is then named by mypy wherever it has to be heard.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("elasticd", "recovery", "checkpoints", "systemd-like", "launchd")
OPEN = {
    "elasticd/ignore.py": "parts of a pattern that somebody has written",
    "elasticd/settings/toml_lines.py": "letters of a file",
    "elasticd/shell/storage/eventform.py": "whatever an event's field holds",
    "elasticd/train/states/picture.py": "whatever a script has put into a module",
    "elasticd/train/states/trees.py": "names of kinds as they come from a file",
    "recovery/faults.py": "signs, of which a later version may know more",
}
"""Where a subject has no type that could list its cases, and what it is."""


def matches(path: Path) -> Iterator[ast.Match]:
    return (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Match))


def forgets(found: ast.Match) -> bool:
    """Whether a case that nobody thought of would pass in silence."""
    last = found.cases[-1]
    first = ast.unparse(last.body[0])
    return not ast.unparse(last.pattern).isidentifier() or not first.startswith("assert_never(")


def test_every_match_names_all_cases() -> None:
    files = {path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")}
    found = {
        f"{path.relative_to(ROOT)}:{each.lineno}"
        for path in files
        for each in matches(path)
        if forgets(each)
    }
    assert len(files) > 200
    forgotten = sorted(where for where in found if where.partition(":")[0] not in OPEN)
    assert forgotten == [], "these end without assert_never"
    assert {where.partition(":")[0] for where in found} == set(OPEN), "no longer open"
