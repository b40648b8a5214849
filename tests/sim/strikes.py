"""Which kinds of faults there are, and which of them strike when in a run."""

from __future__ import annotations

import random

from .cluster import Setup, Strike

CHILD_KINDS = (
    "trainer",
    "reducer",
    "trainers",
    "spare_trainer",
    "spare_reducer",
    "stop_trainer",
    "stop_reducer",
    "hang",
    "oom",
    "deadlock",
    "diverge",
)
NODE_KINDS = (
    "node", "processes", "daemon", "daemons", "crash", "power_cut", "stop_node", "stop_daemon",
    "sleep", "leave", "rolling", "world",
)  # fmt: skip
LINK_KINDS = ("flap", "partition", "silence", "one_way", "clog", "address")
DISK_KINDS = ("disk_full", "disk_slow", "rot", "journal_lost", "journal_damaged")
CLOCK_KINDS = ("clock_step", "clock_drift")
ENVIRONMENT_KINDS = ("unmounted", "other")
OPERATOR_KINDS = ("submit", "cancel", "pause", "drain", "retry")
AGEING_KINDS = ("keep", "forget", "dismiss")
"""Of clusters that have lived before: what removes what is left of that."""
VERSION_KINDS = ("upgrade", "downgrade", "upgrade_all", "ancient", "later_words")
"""Of clusters whose nodes are of several versions."""
CHIPS = "chips"
"""No fault: asked for with kinds, it is of clusters whose machines are of two kinds."""
KINDS = (
    *CHILD_KINDS, *NODE_KINDS, *LINK_KINDS, *DISK_KINDS, *CLOCK_KINDS, *ENVIRONMENT_KINDS,
    *OPERATOR_KINDS,
)  # fmt: skip
TOLD_KINDS = ("diverge_daemons",)
"""Of one strike more in a few runs, which no other fault shifts with."""
STRANGER_KINDS = ("stranger", "stranger")
"""The same in a few other runs."""
LOADING_KINDS = ("hang_loading",)
"""The same in some others."""
RENEWAL_KINDS = ("renew",)
"""The same in some others."""
ROT_KINDS = ("rot_everywhere",)
"""The same in some others."""
ABSENCE_KINDS = ("absence",)
"""The same in some others."""
EVERY_KIND = (
    *KINDS, *AGEING_KINDS, *VERSION_KINDS, *TOLD_KINDS, *LOADING_KINDS, *RENEWAL_KINDS, *ROT_KINDS,
    *ABSENCE_KINDS, "stranger",
)  # fmt: skip
HEAVY_KINDS = frozenset((*NODE_KINDS, *LINK_KINDS, *DISK_KINDS, *ROT_KINDS))
"""Crashes, partitions and disk faults."""


def plan(setup: Setup) -> tuple[Strike, ...]:
    """The faults of a run: those given, else drawn from the seed."""
    if setup.strikes is not None:
        return setup.strikes
    if not setup.fault_kinds:
        return ()
    chance = random.Random(f"faults {setup.seed}")
    found: list[Strike] = []
    at = 0.0
    while True:
        # Often the next one comes while the last is still being recovered from.
        soon = chance.random() < 0.3
        mean = setup.mean_fault_seconds
        at += chance.uniform(0.0, 0.3) if soon else chance.expovariate(1 / mean)
        if at >= setup.fault_seconds:
            return (*found, *_more(setup))
        found.append(Strike(len(found), at, chance.choice(setup.fault_kinds)))


def _more(setup: Setup) -> list[Strike]:
    """One of each kind that comes on top; their numbers are below the others'."""
    drawn = [random.Random(f"{kind} {setup.seed}") for kind in setup.more_kinds]
    return [
        Strike(-number, chance.uniform(0.0, setup.fault_seconds), kind)
        for number, (kind, chance) in enumerate(zip(setup.more_kinds, drawn, strict=True), 1)
    ]
