"""What is given up, level by level, when a job runs out of memory; nothing of it is the user's.

level 0   as job.toml says
level 1   no spare trainers, small caches                          the same bits
level 2   activations are computed again in the backward pass      the same bits
level 3+  half as many samples at once, each level again           other rounding
"""

from __future__ import annotations

from dataclasses import dataclass

from elasticd.types import Range

RECOMPUTE_LEVEL = 2
LEAST_MICRO = "least_micro"
"""The key of a trainer's fingerprint that says how few samples its grains may have."""


@dataclass(frozen=True, slots=True)
class Cut:
    """How a global batch is cut into grains at some level of relief."""

    global_size: int
    micro: int

    @property
    def grains(self) -> int:
        """Grains in a global batch; the last may be smaller."""
        return -(-self.global_size // self.micro)

    @property
    def whole(self) -> Range:
        return (0, self.grains)


def cut(global_size: int, micro: int, level: int) -> Cut:
    """The grains at ``level``, where job.toml asks for ``micro`` samples at once."""
    return Cut(global_size, max(1, micro >> max(0, level - RECOMPUTE_LEVEL)))


def last_level(global_size: int, micro: int, least: int = 1) -> int:
    """The level at which nothing is left to give up.

    A model may need at least ``least`` samples in every grain (batch statistics need two).
    """
    level = RECOMPUTE_LEVEL
    while cut(global_size, micro, level).micro > 1:
        smaller = cut(global_size, micro, level + 1)
        if smaller.micro < least or 0 < global_size % smaller.micro < least:
            break
        level += 1
    return level


def describe(global_size: int, micro: int, level: int) -> str:
    """A sentence: what changes at ``level``, and what that does to exactness."""
    if level <= 1:
        return "no spare trainers and small caches from now on; the result keeps its bits"
    if level == RECOMPUTE_LEVEL:
        return (
            "activations are computed again in the backward pass from now on; that takes more time"
            " and the result keeps its bits"
        )
    before, after = (cut(global_size, micro, n).micro for n in (level - 1, level))
    return (
        f"{after} instead of {before} samples at once from now on; the global batch stays"
        f" {global_size}, but sums are rounded in another order, so the result differs in its last"
        " bits from that of an undisturbed run (random draws, such as dropout's, are others, too)"
    )
