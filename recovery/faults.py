"""From pieces of evidence to one fault with a culprit.

A killed trainer takes its reducer with it, and that breaks the rings of its neighbours: one fault,
many witnesses. The evidence nearest to the cause names it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from elasticd.types import NodeId

_NEAREST = (
    "peer_lost",
    "oom",
    "hang",
    "worker_exit",
    "divergence",
    "not_finite",
    "reducer_lost",
    "state_unavailable",
    "link_lost",
    "ring_broken",
)
"""From the cause to its consequences. ``ring_broken`` alone is a link that failed between living
reducers."""

_OUTSIDE = frozenset(("peer_lost", "link_lost"))
_FOLLOWS = frozenset(("ring_broken", "state_unavailable"))
"""What a node or link that is lost brings about in others."""


@dataclass(frozen=True, slots=True)
class Evidence:
    culprit: NodeId
    fault: str
    text: str
    seen_seconds: float
    """When the leader learned of it, on the leader's monotonic clock."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    fault: str
    """One of worker_exit reducer_lost oom link_lost hang peer_lost divergence slow
    (INTERFACE.md)."""
    culprit: NodeId
    evidence: tuple[str, ...]


def classify(pieces: Sequence[Evidence]) -> tuple[Diagnosis, ...]:
    """One diagnosis for each independent cause; consequences are listed with them as evidence.

    Raises:
        ValueError: there is no evidence.
    """
    if not pieces:
        raise ValueError("no evidence")
    ordered = sorted(pieces, key=lambda piece: (_distance(piece.fault), piece.seen_seconds))
    cause_rank = _NEAREST.index("reducer_lost")
    causes: dict[NodeId, Evidence] = {}
    for piece in ordered:
        if _distance(piece.fault) <= cause_rank and piece.culprit not in causes:
            causes[piece.culprit] = piece
    if not causes:
        causes[ordered[0].culprit] = ordered[0]
    public = {
        "ring_broken": "link_lost",
        "state_unavailable": "link_lost",
        "not_finite": "divergence",
    }
    result = []
    for culprit, cause in causes.items():
        texts = [cause.text, *(p.text for p in ordered if p is not cause and p.culprit == culprit)]
        if len(causes) == 1:
            texts += [f"{p.culprit}: {p.text}" for p in ordered if p.culprit != culprit]
        fault = public.get(cause.fault, cause.fault)
        result.append(Diagnosis(fault, culprit, tuple(dict.fromkeys(texts))))
    return tuple(result)


def from_outside(pieces: Sequence[Evidence]) -> bool:
    """Whether nodes or links that were lost are behind all of it: however often that comes again,
    it says nothing against the job."""
    kinds = {piece.fault for piece in pieces}
    return bool(kinds & _OUTSIDE) and kinds <= _OUTSIDE | _FOLLOWS


def _distance(fault: str) -> int:
    return _NEAREST.index(fault) if fault in _NEAREST else len(_NEAREST)
