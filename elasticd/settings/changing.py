"""What a daemon does with an elasticd.toml that has changed while it runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from elasticd.settings.config import TABLES, NodeConfig, values_of

LIVE = frozenset({"output_bytes", "peers", "quota_bytes"})
"""Keys that a running daemon takes; those of tables too. On the others it was built, or the other
nodes know it by them."""


def is_live(key: str) -> bool:
    return key in LIVE or key.partition(".")[0] in TABLES


@dataclass(frozen=True, slots=True)
class Change:
    """``config``: what holds from now on."""

    config: NodeConfig
    taken: tuple[str, ...]
    """Keys that have another value from now on."""
    later: tuple[str, ...]
    """Those that will have one when the daemon is started again."""


def change(running: NodeConfig, found: NodeConfig) -> Change:
    """``found``: what the file says now."""
    before, after = values_of(running), values_of(found)
    differ = [key for key in after if after[key] != before[key]]
    live = {name: getattr(found, name) for name in (*LIVE, *TABLES)}
    return Change(replace(running, **live), _only(differ, True), _only(differ, False))


def _only(keys: Iterable[str], live: bool) -> tuple[str, ...]:
    return tuple(key for key in keys if is_live(key) == live)
