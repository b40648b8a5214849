"""A class has a name of its own, so that a search finds one thing."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_no_two_classes_share_a_name() -> None:
    found: defaultdict[str, set[str]] = defaultdict(set)
    for package in ("elasticd", "recovery", "checkpoints", "systemd-like", "launchd"):
        for path in (ROOT / package).rglob("*.py"):  # elasticd/ has links to the others
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef):
                    found[node.name].add(f"{path.resolve().relative_to(ROOT)}:{node.lineno}")
    assert len(found) > 500
    assert not {name: sorted(places) for name, places in found.items() if len(places) > 1}
