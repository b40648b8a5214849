"""One random grain, computed again on other nodes: hardware that computes wrongly shows where equal
parameters do not, since its wrong gradient goes into everybody's update.

Which grain of which step, and by whom, all members know by themselves. Three digests name the odd
one; of two nobody can tell which is wrong.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from elasticd.recovery.regroup import Shares
from elasticd.types import NodeId

_CHECKERS = 2


@dataclass(frozen=True, slots=True)
class Check:
    """``owner`` computes ``grain`` anyhow, ``checkers`` once more; all of them ranks."""

    grain: int
    owner: int
    checkers: tuple[int, ...]

    @property
    def ranks(self) -> tuple[int, ...]:
        """Whose digests are compared."""
        return (self.owner, *self.checkers)


@dataclass(frozen=True, slots=True)
class Finding:
    """``odd`` computed something else than most; None: there is no telling who is wrong."""

    odd: NodeId | None
    reason: str


def choose(seed: int, step: int, every: int, shares: Shares) -> Check | None:
    """What is computed twice in ``step``, if anything: a function of the job, the step and the
    shares."""
    if not every or step % every or len(shares) < 2:
        return None
    told = hashlib.blake2b(f"recheck\0{seed}\0{step}".encode(), digest_size=8).digest()
    draw = int.from_bytes(told, "big")
    grains = [(g, rank) for rank, share in enumerate(shares) for a, b in share for g in range(a, b)]
    grain, owner = sorted(grains)[draw % len(grains)]
    others = [(owner + 1 + n) % len(shares) for n in range(len(shares) - 1)]
    start = draw // len(grains) % len(others)
    return Check(grain, owner, tuple((others[start:] + others[:start])[:_CHECKERS]))


def judge(digests: Mapping[NodeId, str], grain: int, step: int) -> Finding | None:
    """None if all have the same bits."""
    counts = Counter(digests[node] for node in sorted(digests))
    if len(counts) == 1:
        return None
    (most, votes), *_ = counts.most_common()
    who = ", ".join(f"{node} {digests[node][:12]}" for node in sorted(digests))
    text = f"grain {grain} of step {step} was computed again and has other bits"
    if 2 * votes <= len(digests):
        return Finding(None, f"{text}; there is no telling which are right: {who}")
    (odd,) = (node for node in sorted(digests) if digests[node] != most)
    return Finding(odd, f"{text} here than on {votes} others: {who}")
