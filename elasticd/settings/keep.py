"""``[keep]`` of elasticd.toml: what stays of jobs that have ended."""

from __future__ import annotations

from dataclasses import dataclass, field

from elasticd.settings.rules import boolean, integer, rule


@dataclass(frozen=True)
class KeepRules:
    """``[keep]``: what stays on this node's disk of jobs that have ended."""

    days: int = field(
        default=30,
        metadata=rule(
            integer(0, 36500), "How many days after a job's end its files stay; 0: for ever."
        ),
    )
    jobs: int = field(
        default=1000,
        metadata=rule(
            integer(0, 2**31), "Of how many ended jobs files stay, the last ones; 0: of all."
        ),
    )
    bytes: int = field(
        default=20 << 30,
        metadata=rule(
            integer(0, 2**62),
            "What the files of all ended jobs may take together; 0: as much as there is.",
        ),
    )
    log_bytes: int = field(
        default=256 << 20,
        metadata=rule(
            integer(0, 2**62),
            "What one job's log may take on this node, also while it runs; 0: all of it stays.",
        ),
    )
    results: bool = field(
        default=True,
        metadata=rule(
            boolean, "false: outputs, checkpoints and the record of an ended job go, too."
        ),
    )
