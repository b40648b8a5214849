"""Whatever kills a group of processes bears what each system says of one whose members have ended.

Linux counts a zombie among the members. XNU (killpg1 in bsd/kern/kern_sig.c) passes it over, and
says EPERM where nobody is left.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
FOLDERS = ("elasticd", "recovery", "checkpoints", "systemd-like", "launchd")
_BORNE = ({"OSError"}, {"ProcessLookupError", "PermissionError"})


def kills(node: ast.AST, borne: frozenset[str]) -> Iterator[tuple[int, frozenset[str]]]:
    """The lines that call ``os.killpg``, each with the names of the errors that don't get out."""
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "os.killpg":
        yield node.lineno, borne
    if isinstance(node, ast.With):
        for item in node.items:
            if ast.unparse(item.context_expr).startswith("contextlib.suppress("):
                assert isinstance(item.context_expr, ast.Call)
                borne = borne.union(map(ast.unparse, item.context_expr.args))
    for child in ast.iter_child_nodes(node):
        yield from kills(child, borne)


def test_no_group_that_has_just_ended_is_an_error() -> None:
    found = {
        f"{path.relative_to(ROOT)}:{line}": borne
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*.py")
        for line, borne in kills(ast.parse(path.read_text()), frozenset())
    }
    assert len(found) > 5
    assert [
        where for where, borne in found.items() if not any(each <= borne for each in _BORNE)
    ] == []
