"""Who is the odd one out among members that should hold equal parameters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from elasticd.types import NodeId


@dataclass(frozen=True, slots=True)
class Divergence:
    """``odd`` is to take the state of the others; with no majority nobody is to be trusted."""

    odd: tuple[NodeId, ...]
    majority: bool
    reason: str


def compare(digests: Mapping[NodeId, str], step: int) -> Divergence | None:
    """None if all agree.

    Raises:
        ValueError: there is nothing to compare.
    """
    if not digests:
        raise ValueError("no digests")
    counts = Counter(digests[node] for node in sorted(digests))
    if len(counts) == 1:
        return None
    (most, votes), *_ = counts.most_common()
    text = ", ".join(f"{node} {digests[node][:12]}" for node in sorted(digests))
    if 2 * votes <= len(digests):
        return Divergence((), False, f"parameters differ after step {step}, no majority: {text}")
    odd = tuple(node for node in sorted(digests) if digests[node] != most)
    return Divergence(odd, True, f"parameters differ from the majority's after step {step}: {text}")
