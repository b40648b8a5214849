"""``[keep]`` of elasticd.toml: what stays of jobs that have ended."""

from __future__ import annotations

from dataclasses import dataclass, field

from elasticd.settings.rules import boolean, integer, rule


@dataclass(frozen=True)
class KeepRules:
    """``[keep]``: what stays on this node's disk of jobs that have ended."""

    days: int = field(default=30, metadata=rule(integer(0, 36500)))
    """So long after a job's end; 0: for ever."""
    jobs: int = field(default=1000, metadata=rule(integer(0, 2**31)))
    """Of so many jobs, those that ended last; 0: of all."""
    bytes: int = field(default=20 << 30, metadata=rule(integer(0, 2**62)))
    """So much of all ended jobs together; 0: as much as there is."""
    log_bytes: int = field(default=256 << 20, metadata=rule(integer(0, 2**62)))
    """So much of what one job's ranks printed here, also while it runs; 0: all."""
    results: bool = field(default=True, metadata=rule(boolean))
    """Outputs, checkpoints and the record stay, whatever the limits; False: such a job is forgotten
    by the whole cluster."""
