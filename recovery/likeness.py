"""Whether who joins has come to what those have who stayed; all are digests by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count

from elasticd.recovery.divergence import MODEL_PART, Unlike
from elasticd.recovery.divergence import unlike as unlike_things
from elasticd.recovery.exactness import OUTSIDE
from elasticd.types import NodeId

_COMPUTED = ("model/", "optimizer/", "which parameters")
"""Names of what no script keeps by rank; all others are names of what it tracks."""
_SHOWN = 3


def unlike(ours: Mapping[str, str], theirs: Mapping[str, str], keeper: str, step: int) -> str:
    """What ``theirs`` has otherwise than ``ours``, which is ``keeper``'s; empty if nothing."""
    differ = (n for n in {*ours, *theirs} if ours.get(n) != theirs.get(n))
    # The model's arrays may only show what comes of the rest.
    names = sorted(differ, key=lambda name: (name.startswith("model/"), name))
    if not names:
        return ""
    more = len(names) - _SHOWN
    shown = ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
    return (
        f"{OUTSIDE}: in its first step, {step}, this node comes "
        f"to something else than {keeper}, which has trained before: {shown}. What the body keeps "
        "from step to step belongs into the model, the optimizer, run.state or run.track, with "
        "per_rank=True if it is each rank's own; if it is there, the node computes wrongly"
    )


def by_rank(kept: Mapping[NodeId, Mapping[str, str]]) -> Unlike | None:
    """The first thing that the script tracks and that those have otherwise who have ``kept`` their
    state: no newcomer is to blame. None if they have computed otherwise, too."""
    parts = {}
    for node, shown in kept.items():
        computed = sorted((n, d) for n, d in shown.items() if n.startswith(_COMPUTED))
        tracked = {n: d for n, d in shown.items() if not n.startswith(_COMPUTED)}
        parts[node] = {MODEL_PART: str(computed), **tracked}
    return unlike_things(parts)


@dataclass(slots=True)
class Kinds:
    """Who shows the same as who.

    There are thousands of names, and a look at every word of a member. So what somebody shows is
    compared when it is new, once with each that is different.
    """

    _numbers: Iterator[int] = field(default_factory=count)
    _kinds: dict[int, Mapping[str, str]] = field(default_factory=dict)
    """At most one each."""
    _of: dict[NodeId, tuple[Mapping[str, str], int]] = field(default_factory=dict)
    _tracked: dict[frozenset[int], str | None] = field(default_factory=dict)
    """Of these kinds together the name of the first thing that is kept by rank."""

    def clear(self) -> None:
        """Something else will be shown."""
        self._kinds.clear()
        self._of.clear()
        self._tracked.clear()

    def of(self, node: NodeId, shown: Mapping[str, str]) -> int:
        """The same number for all who show the same; ``shown`` never changes."""
        known = self._of.get(node)
        if known is not None and known[0] is shown:
            return known[1]
        kinds = (number for number, each in self._kinds.items() if each == shown)
        if (kind := next(kinds, None)) is None:
            kind = next(self._numbers)
            self._kinds[kind] = shown
        self._of[node] = shown, kind
        if len(self._kinds) > len(self._of):
            left = {number for _, number in self._of.values()}
            self._kinds = {number: self._kinds[number] for number in sorted(left)}
            self._tracked.clear()
        return kind

    def among(
        self, node: NodeId, shown: Mapping[str, str], others: Mapping[NodeId, Mapping[str, str]]
    ) -> bool:
        """Whether it shows the same as any of these."""
        kind = self.of(node, shown)
        return any(self.of(other, its) == kind for other, its in others.items())

    def by_rank(self, kept: Mapping[NodeId, Mapping[str, str]]) -> Unlike | None:
        """As :func:`by_rank`."""
        one_each = {self.of(node, shown): node for node, shown in kept.items()}
        together = frozenset(one_each)
        if len(together) < 2:
            return None
        if together not in self._tracked:
            found = by_rank({node: kept[node] for node in one_each.values()})
            self._tracked[together] = None if found is None else found.name
        if (name := self._tracked[together]) is None:
            return None
        return Unlike(name, {node: kept[node].get(name, "") for node in sorted(kept)})
