"""A job that is tried with other settings: what is wanted, and what was seen, as they travel."""

from __future__ import annotations

from dataclasses import dataclass, replace

from elasticd.types import NodeId

LEAST_STEPS = 3
"""Of a trial, for it to count."""
WARM_STEPS = 2
"""They compile kernels and make the optimizer's state: nothing of them counts."""
TABLE = "trial"
"""Of the settings of a job that is tried, beside those of its job.toml."""


@dataclass(frozen=True, slots=True)
class Setting:
    """``micro``: samples at once. ``recompute``: activations are computed again. ``store_every``:
    steps between checkpoints; 0: none."""

    micro: int
    recompute: bool = False
    store_every: int = 0

    def __str__(self) -> str:
        more = ", activations computed again" * self.recompute
        stores = f", a checkpoint every {self.store_every} steps" if self.store_every else ""
        return f"micro {self.micro}{more}{stores}"


@dataclass(frozen=True, slots=True)
class TrialAsked:
    """Try a job with that setting, and measure its steps for so many seconds."""

    setting: Setting
    seconds: float


@dataclass(frozen=True, slots=True)
class Trial:
    """One run. ``seconds``: of each step that counts. Bytes are of MLX's memory: the most that
    arrays had, and what they have between steps. ``failed``: why it came to nothing."""

    setting: Setting
    seconds: tuple[float, ...] = ()
    peak_bytes: int = 0
    active_bytes: int = 0
    limit_bytes: int = 0
    stored: tuple[tuple[int, float], ...] = ()
    """Bytes and seconds of each checkpoint."""
    failed: str = ""
    short: bool = False
    """It failed for want of memory."""

    @property
    def median_seconds(self) -> float:
        from statistics import median  # loaded late: every command loads this module

        return median(self.seconds)

    @property
    def mean_seconds(self) -> float:
        return sum(self.seconds) / len(self.seconds)


@dataclass(frozen=True, slots=True)
class TrialSeen:
    """What a trial came to on a node.

    Attributes:
        trial: None: there was none.
        trains: it was not tried, since this job has processes there.
        older: it was not tried, since that node's version can't.
        error: why it was not tried else.
    """

    node: NodeId
    trial: Trial | None = None
    trains: str = ""
    older: bool = False
    error: str = ""


def slowest(seen: list[tuple[NodeId, Trial]]) -> Trial:
    """What a trial on some nodes, one at least, comes to for the job. A step takes as long as on
    the slowest, and memory is that of the node that has the least left. One that fails somewhere
    fails: for want of memory, if that is so anywhere."""
    failing = sorted(
        ((node, each) for node, each in seen if not each.seconds), key=lambda one: not one[1].short
    )
    for node, each in failing[:1]:
        return replace(each, failed=f"{node}: {each.failed}")
    _, slow = max(seen, key=lambda one: one[1].median_seconds)
    _, full = min(seen, key=lambda one: one[1].limit_bytes - one[1].peak_bytes)
    return replace(
        slow,
        peak_bytes=full.peak_bytes,
        active_bytes=full.active_bytes,
        limit_bytes=full.limit_bytes,
        failed=next((f"{node}: {each.failed}" for node, each in seen if each.failed), ""),
    )


def untried(seen: list[TrialSeen]) -> list[str]:
    """On which nodes it could not be tried, and why. (Those of an earlier version never could.)"""
    return [
        f"{each.node}: {f'{each.trains} runs there' if each.trains else each.error}"
        for each in seen
        if each.trains or (each.error and not each.older)
    ]
