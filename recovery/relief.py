"""What is given up, level by level, when a job runs out of memory; nothing of it is the user's.

level 0   as job.toml says
level 1   no spare trainers, small caches                          the same bits
level 2   activations are computed again in the backward pass      the same bits, as a rule
level 3+  half as many samples at once, each level again           other rounding
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, log2

from elasticd.counting import counted
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


_MOST_HALVINGS = 2
"""At once: what was asked for need not shrink as the grain does."""
_ASKED = re.compile(r"(?:allocate|allocating) ([\d.]+) (bytes|KiB|MiB|GiB|TiB)")
_ROOM = re.compile(r"\[room (\d+) bytes\]")
_UNITS = {"bytes": 0, "KiB": 10, "MiB": 20, "GiB": 30, "TiB": 40}


@dataclass(frozen=True, slots=True)
class Shortage:
    """What is known of an allocation that failed. ``room_bytes``: what there was for it, with the
    caches given back. None: not known."""

    asked_bytes: int | None = None
    room_bytes: int | None = None
    batch: bool = False
    """It was for the batch itself, when there were no activations that could be done without."""

    @property
    def times(self) -> float:
        """How many times more was asked for than there was room; 0 if that isn't known."""
        if self.asked_bytes is None or self.room_bytes is None:
            return 0.0
        return self.asked_bytes / max(1, self.room_bytes)


def room_text(size_bytes: int) -> str:
    """How a trainer appends to its evidence what there was room for."""
    return f"[room {max(0, size_bytes)} bytes]"


def shortage_of(text: str) -> Shortage:
    """The figures in what a process said: MLX and numpy name the bytes that they asked for."""
    asked, room = _ASKED.search(text), _ROOM.search(text)
    return Shortage(
        int(float(asked[1].rstrip(".")) * (1 << _UNITS[asked[2]])) if asked else None,
        int(room[1]) if room else None,
        text.startswith("MemoryError"),
    )


def next_level(level: int, last: int, shortages: Sequence[Shortage], again: bool) -> int:
    """What to give up next, at most ``last``. Several levels at once where one clearly won't do.

    All that keeps the bits is tried before grains are halved.

    Args:
        level: what is given up already.
        shortages: what is known of each process that ran out.
        again: no step was committed since the last relief, so that one was too little.
    """
    worst = max(shortages, key=lambda each: each.times, default=Shortage())
    halvings = min(_MOST_HALVINGS, ceil(log2(worst.times))) if worst.times > 1 else 1
    if level >= RECOMPUTE_LEVEL:
        return min(last, level + halvings)
    if worst.times > 1:
        # Caches can't hold what was asked for; nor could activations, if there were none.
        return min(last, RECOMPUTE_LEVEL + (halvings if worst.batch else 0))
    return min(last, level + (2 if again else 1))


def describe_back(global_size: int, micro: int, before: int, level: int) -> str:
    """A sentence: what is as it was before, once level ``before`` has become ``level``."""
    was, now = (cut(global_size, micro, n).micro for n in (before, level))
    parts = ["the operator asks for more memory again: what was given up is given back"]
    if was != now:
        parts.append(f"{now} instead of {counted(was, 'sample')} at once")
    return "; ".join(parts)


def describe(global_size: int, micro: int, before: int, level: int) -> str:
    """A sentence: what changes from level ``before`` to ``level``, and what that does to
    exactness."""
    parts = []
    if before < 1 <= level:
        parts.append("no spare trainers and small caches")
    if before < RECOMPUTE_LEVEL <= level:
        parts.append("activations are computed again in the backward pass, which takes more time")
    was, now = (cut(global_size, micro, n).micro for n in (before, level))
    if was == now:
        again = before < RECOMPUTE_LEVEL <= level
        said = (
            " (unless what goes into a layer is used outside of it, too, as by a skip connection:"
            " then gradients are added up in another order)"
        )
        return f"{'; '.join(parts)}; from now on, and the result keeps its bits{said * again}"
    parts.append(f"{now} instead of {counted(was, 'sample')} at once")
    return (
        f"{'; '.join(parts)}; from now on. The global batch stays {global_size}, but sums are"
        " rounded in another order, so the result differs in its last bits from that of an"
        " undisturbed run (random draws, such as dropout's, are others, too)"
    )
