"""Nobody maps a file: for each mapping with a descriptor, even to read it, Python flushes a Mac's
whole drive with its lock held (cpython, issue 113861). Shared memory has no drive."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OF_MEMORY = {
    "checkpoints/codec.py": ["_map_into", "_read_into"],
    "elasticd/cli/mac/processes.py": ["_passed_on"],
    "elasticd/ipc/memory.py": ["__init__"],
    "elasticd/shell/network/stream.py": ["_receive_mapped", "send_mapped"],
}
"""Functions that map shared memory, which macOS lets nobody read otherwise."""
NAMES = {"mmap", "memmap", "open_memmap", "mmap_mode", "update_mmap"}


def maps(code: ast.AST, within: str = "") -> Iterator[str]:
    """The functions that map something which has a descriptor, once for each."""
    found: list[str] = []
    for node in ast.iter_child_nodes(code):
        inside = node.name if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else within
        if isinstance(node, ast.Call) and called(node) and not is_nameless(node):
            found.append(within)
        found.extend(maps(node, inside))
    yield from dict.fromkeys(found)


def called(call: ast.Call) -> bool:
    name = getattr(call.func, "attr", getattr(call.func, "id", ""))
    return name in NAMES or any(each.arg in NAMES for each in call.keywords)


def is_nameless(call: ast.Call) -> bool:
    return bool(call.args) and ast.unparse(call.args[0]) == "-1"


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("def a():\n with mmap.mmap(fd, 1) as m, mmap.mmap(2, 1): pass", ["a"]),
        ("mmap(fd, 1)\nasync def b(): np.memmap(path)", ["", "b"]),
        ("class A:\n def c(self): return np.load(path, mmap_mode='r')", ["c"]),
        ("numpy.lib.format.open_memmap(path)\ndef d(): blake3().update_mmap(path)", ["", "d"]),
        ("mmap.mmap(-1, 5), mmap.PAGESIZE", []),
    ],
)
def test_what_maps_is_found(code: str, found: list[str]) -> None:
    assert list(maps(ast.parse(code))) == found


def test_only_shared_memory_is_mapped() -> None:
    found = {}
    for package in ("elasticd", "recovery", "checkpoints", "systemd-like", "launchd"):
        for path in (ROOT / package).rglob("*.py"):  # elasticd/ has links to the others
            if functions := list(maps(ast.parse(path.read_text()))):
                found[path.resolve().relative_to(ROOT).as_posix()] = sorted(functions)
    assert found == OF_MEMORY
