"""Which modules a script needs, read from its text, and how it names them."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

MAX_MODULES = 100
_PACKAGE = (b"__package__", b"__spec__")
"""What a script that gives itself a package writes to."""
_BEFORE = (
    ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign, ast.FunctionDef, ast.AsyncFunctionDef,
    ast.ClassDef,
)  # fmt: skip


def imported(sources: Mapping[str, bytes], script: str) -> tuple[str, ...]:
    """The packages that ``script`` imports first of all, or a module that is shipped with it does,
    as far as they are not shipped, nor Python's own.

    What is imported in a function, an ``if`` or a ``try`` may be done without.
    """
    shipped: dict[str, list[str]] = {}
    for name in sources:
        path = PurePosixPath(name)
        for part in (*path.parts[:-1], path.stem):
            shipped.setdefault(part, []).append(name)
    found, looked, left = set[str](), set[str](), [str(PurePosixPath(script))]
    while left:
        name = left.pop()
        if name in looked or name not in sources:
            continue
        looked.add(name)
        for module in _modules(sources[name]):
            top = module.partition(".")[0]
            if top not in shipped:
                found.add(top)
                continue
            wanted = module.rpartition(".")[2]
            left += [n for n in shipped[top] if PurePosixPath(n).stem in (top, wanted, "__init__")]
    return tuple(sorted(found - sys.stdlib_module_names))[:MAX_MODULES]


def _modules(source: bytes) -> Iterator[str]:
    """None of a text that this Python can't read: another may."""
    try:
        statements = ast.parse(source).body
    except (SyntaxError, ValueError):
        return
    for each in statements:
        if isinstance(each, ast.Import):
            yield from (alias.name for alias in each.names)
        elif isinstance(each, ast.ImportFrom) and each.module and not each.level:
            yield each.module


def relative(source: bytes) -> tuple[int, str, str] | None:
    """The first import of a script that is sure to fail, as the script is in no package: its line,
    how it begins, and what to write instead. None: there is no such one, or what stands above it
    may end the script, or start another.
    """
    if any(name in source for name in _PACKAGE):
        return None
    for each in ast.parse(source).body:
        if isinstance(each, ast.ImportFrom) and each.level:
            said = f"from {'.' * each.level}{each.module or ''} import …"
            return each.lineno, said, _absolute(each)
        is_text = isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant)
        if not is_text and not isinstance(each, _BEFORE):
            return None
    return None


def _absolute(statement: ast.ImportFrom) -> str:
    """The same of what lies beside the script."""
    if statement.module is not None:
        return f"from {statement.module} import …"
    names = [name for name in statement.names if name.name != "*"]
    return ast.unparse(ast.Import(names)) if names else "import …"
