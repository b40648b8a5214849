"""From pieces of evidence to one fault with a culprit.

A killed trainer takes its reducer with it, and that breaks the rings of its neighbours: one fault,
many witnesses. The evidence nearest to the cause names it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from elasticd.recovery.signatures import FATAL_SIGNALS
from elasticd.types import Confidence, FaultKind, NodeId, Sign

NEAREST: tuple[Sign, ...] = (
    "peer_lost",
    "oom",
    "hang",
    "worker_exit",
    "divergence",
    "not_finite",
    "reducer_lost",
    "state_unavailable",
    "link_lost",
    "reducer_crashed",
    "stranger",
    "reducer_gone",
    "ring_broken",
)
"""From the cause to its consequences. ``ring_broken`` alone is a link that failed between living
reducers; ``reducer_crashed`` a reducer that ended by a signal of its own doing, as some do when
their ring breaks; ``stranger`` a neighbour in a ring that did not show that it is one;
``reducer_gone`` is the word of its trainer, which can't tell how it ended."""

RING_FAULTS: tuple[Sign, ...] = ("reducer_lost", "reducer_crashed", "reducer_gone", "ring_broken")
"""With any of these a ring has come to its end."""

_CAUSE = NEAREST.index("reducer_lost")
"""Whatever is as near is a fault of its own; what is farther is told only if nothing nearer is."""

_CONFIDENCE: dict[Sign, Confidence] = {
    "peer_lost": "likely",
    "hang": "likely",
    "link_lost": "likely",
    "state_unavailable": "likely",
    "reducer_crashed": "likely",
    "stranger": "possible",
    "reducer_gone": "likely",
    "ring_broken": "possible",
}
"""Where the evidence does not say how sure it is. All else was seen by the node itself."""

_OUTSIDE = frozenset(("peer_lost", "link_lost", "stranger"))
_FOLLOWS = frozenset(("ring_broken", "reducer_gone", "reducer_crashed", "state_unavailable"))
"""What a node or link that is lost brings about in others."""


@dataclass(frozen=True, slots=True)
class Evidence:
    culprit: NodeId
    fault: Sign
    text: str
    seen_seconds: float
    """When the leader learned of it, on the leader's monotonic clock."""
    confidence: Confidence = ""
    """How sure the fault is, where the evidence says so itself."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    sign: Sign
    """What the nearest evidence speaks of."""
    culprit: NodeId
    evidence: tuple[str, ...]
    confidence: Confidence = "certain"
    """That it was this fault, and there."""

    @property
    def fault(self) -> FaultKind:
        """What people are told."""
        return _public(self.sign)


def of_reducer(status: int | None) -> Sign:
    """What the end of a reducer says: exit code, or minus the signal; None: not known."""
    if status is None:
        return "reducer_gone"
    if status >= 0:
        return "ring_broken"
    return "reducer_crashed" if -status in FATAL_SIGNALS else "reducer_lost"


def classify(pieces: Sequence[Evidence]) -> tuple[Diagnosis, ...]:
    """One diagnosis for each independent cause; consequences are listed with them as evidence.

    Raises:
        ValueError: there is no evidence.
    """
    if not pieces:
        raise ValueError("no evidence")
    broken = {piece.culprit for piece in pieces if piece.fault == "ring_broken"}

    def rank(piece: Evidence) -> tuple[int, float]:
        fault = "ring_broken" if _is_explained(piece, broken) else piece.fault
        return _distance(fault), piece.seen_seconds

    ordered = sorted(pieces, key=rank)
    causes: dict[NodeId, Evidence] = {}
    for piece in ordered:
        if _distance(piece.fault) <= _CAUSE and piece.culprit not in causes:
            causes[piece.culprit] = piece
    if not causes:
        causes[ordered[0].culprit] = ordered[0]
    result = []
    for culprit, cause in causes.items():
        texts = [cause.text, *(p.text for p in ordered if p is not cause and p.culprit == culprit)]
        if len(causes) == 1:
            texts += [f"{p.culprit}: {p.text}" for p in ordered if p.culprit != culprit]
        fault = "ring_broken" if _is_explained(cause, broken) else cause.fault
        sure = cause.confidence or _CONFIDENCE.get(fault, "certain")
        result.append(Diagnosis(fault, culprit, tuple(dict.fromkeys(texts)), sure))
    return tuple(result)


def _public(sign: Sign) -> FaultKind:
    match sign:
        case "ring_broken" | "state_unavailable" | "stranger":
            return "link_lost"
        case "not_finite":
            return "divergence"
        case "reducer_crashed" | "reducer_gone":
            return "reducer_lost"
        case _:
            return sign


def from_outside(pieces: Sequence[Evidence]) -> bool:
    """Whether nodes or links that were lost, or strangers, are behind all of it: however often that
    comes again, it says nothing against the job."""
    kinds = {piece.fault for piece in pieces}
    return bool(kinds & _OUTSIDE) and kinds <= _OUTSIDE | _FOLLOWS


def _is_explained(piece: Evidence, broken: Collection[NodeId]) -> bool:
    """A reducer that told of its broken ring is gone because of that."""
    return piece.fault == "reducer_gone" and piece.culprit in broken


def _distance(fault: Sign) -> int:
    return NEAREST.index(fault) if fault in NEAREST else len(NEAREST)
