"""The elasticd.toml that a node begins with: every key with what it is, and its default."""

from __future__ import annotations

import dataclasses
from typing import Any

import tomlkit

from elasticd.settings.config import TABLES, NodeConfig

_HEAD = """\
# What this node's daemon is told. Lines that begin with '#' show the defaults.
# 'elasticctl configure' changes it, and so may you. docs/operating.md says more of each key.
"""
_TABLES = {
    "keep": "What stays on this node's disk of jobs that have ended.",
    "notify": "Whom this node tells when something has happened.",
}


def commented() -> str:
    """The TOML text; it sets nothing."""
    tables = [f"\n# {_TABLES[name]}\n[{name}]\n{_keys(rules())}" for name, rules in TABLES.items()]
    return f"{_HEAD}\n{_keys(NodeConfig())}{''.join(tables)}"


def _keys(defaults: Any) -> str:
    shown = []
    for item in dataclasses.fields(defaults):
        if item.name not in TABLES:
            value = getattr(defaults, item.name)
            pair = tomlkit.dumps({item.name: list(value) if isinstance(value, tuple) else value})
            shown.append(f"# {item.metadata['about']}\n# {pair}")
    return "\n".join(shown)
