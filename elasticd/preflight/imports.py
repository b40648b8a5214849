"""Which modules a script needs, read from its text."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

MAX_MODULES = 100


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
