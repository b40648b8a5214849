"""Who is the odd one out among members that should hold equal parameters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from elasticd.types import NodeId

MODEL_PART = "model"
"""Under this name members tell of the model beside what the script tracks."""

Parts = Mapping[NodeId, Mapping[str, str]]
"""Of each member the digests of the model and of what the script tracks, by name."""


@dataclass(frozen=True, slots=True)
class Unlike:
    """A thing that the script tracks and that ranks have otherwise, while their models are the
    same: no node has computed wrongly. ``digests`` of it, by node; empty: it isn't there."""

    name: str
    digests: Mapping[NodeId, str]


@dataclass(frozen=True, slots=True)
class Divergence:
    """``odd`` is to take the state of the others; with no majority nobody is to be trusted.
    ``unlike``: it is the script's doing. ``models``: what each has, as far as
    it tells of that alone."""

    odd: tuple[NodeId, ...]
    majority: bool
    reason: str
    unlike: Unlike | None = None
    models: Mapping[NodeId, str] = field(default_factory=dict)


def by_chip(
    digests: Mapping[NodeId, str], chips: Mapping[NodeId, str]
) -> tuple[NodeId, NodeId] | None:
    """Two nodes of different chips that explain why digests differ: all of one chip have the same.
    None if that isn't so, or one's chip is not known."""
    of_chip: dict[str, NodeId] = {}
    for node in sorted(digests):
        first = of_chip.setdefault(chips.get(node, ""), node)
        if digests[first] != digests[node]:
            return None
    if "" in of_chip or len({digests[node] for node in of_chip.values()}) < 2:
        return None
    one, *others = sorted(of_chip.values())
    return one, next(node for node in others if digests[node] != digests[one])


def unlike(parts: Parts) -> Unlike | None:
    """The first thing that isn't the same everywhere, if the models are and everybody tells of
    them."""
    models = {told.get(MODEL_PART, "") for told in parts.values()}
    if len(models) != 1 or models == {""}:
        return None
    for name in sorted({name for told in parts.values() for name in told}):
        digests = {node: parts[node].get(name, "") for node in sorted(parts)}
        if len(set(digests.values())) > 1:
            return Unlike(name, digests)
    return None


def compare(
    digests: Mapping[NodeId, str], step: int, parts: Parts = MappingProxyType({})
) -> Divergence | None:
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
    script = unlike(parts)
    models = {node: parts.get(node, {}).get(MODEL_PART) or told for node, told in digests.items()}
    if 2 * votes <= len(digests):
        reason = f"parameters differ after step {step}, no majority: {text}"
        return Divergence((), False, reason, script, models)
    odd = tuple(node for node in sorted(digests) if digests[node] != most)
    reason = f"parameters differ from the majority's after step {step}: {text}"
    return Divergence(odd, True, reason, script, models)
