"""Which nodes one job goes on without, since it can't run there, and when each is tried again.

Pure. A node is left out and tried again in turn; each time its entry's ``turn`` rises by one, so
that of two entries the later one counts wherever records merge.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import inf

from elasticd.recovery.exactness import OUTSIDE
from elasticd.recovery.unknown import NOTHING, Unknown, added, later
from elasticd.types import NodeId

LONGEST_REASON = 2000
_LONGEST_PAUSE_SECONDS = 3600.0
_MOST_TURNS_IN_THE_LOOP = 8
"""A script that raises so often in its loop on one node costs the others a recovery each time: then
only a restart of that node's daemon, or an operator, has it tried again."""
_MOST_TIMES_UNLIKE = 2
"""A node that computes something else so often, when it joins, is not tried again rather than that
the job ends. Once may be one wrong bit, on either side; a script that keeps state to itself does it
each time."""


@dataclass(frozen=True, slots=True)
class Unfit:
    """What is known of one node in one job."""

    node: NodeId
    turn: int
    """Odd: it is left out."""
    reason: str
    step: int = 0
    """The newest committed step when it was left out last."""
    looping: bool = False
    """It had come to the loop's body."""
    unlike: bool = False
    """It joined, and computed something else than those that had stayed."""
    foreseen: bool = added(False)
    """A check of it failed before the job was known; that stays so."""
    outside: bool = added(False)
    """It was left out once, it seems since the script keeps state outside of run.state; that stays
    so."""
    unknown: Unknown = field(default=NOTHING, repr=False)
    """What a later version says of it, kept and passed on."""

    @property
    def out(self) -> bool:
        return self.turn % 2 == 1

    @property
    def shows_outside(self) -> bool:
        """Whether it seems by what it computed that the script keeps state outside of run.state, be
        it that an older build has left it out for that."""
        return self.outside or (self.unlike and self.reason.startswith(OUTSIDE))

    @property
    def proves_outside(self) -> bool:
        """Whether the job has to take it so. Who is tried again may show yet that it was one wrong
        bit."""
        return self.shows_outside and (self.out or self.is_unlike_always)

    def again(self) -> Unfit:
        """It is tried again."""
        return replace(self, turn=self.turn + self.out)

    def pause_seconds(self, first: float) -> float:
        """After so long it is tried again though nobody asks; each time it takes longer."""
        if self._is_spent:
            return inf
        return min(_LONGEST_PAUSE_SECONDS, first * 2.0 ** min(self._times - 1, 16))

    def has_another_chance(self, step: int) -> bool:
        """Whether it is tried again, now that ``step`` is committed, rather than that the job
        ends."""
        open_yet = self.unlike or self.step < step
        return self.out and open_yet and not self.is_unlike_always and not self._is_spent

    @property
    def is_unlike_always(self) -> bool:
        """Whether it would compute something else each time, and let one step be committed: two
        such nodes would take turns for ever."""
        return self.unlike and self._times >= _MOST_TIMES_UNLIKE

    @property
    def _times(self) -> int:
        """So often it was left out."""
        return (self.turn + 1) // 2

    @property
    def _is_spent(self) -> bool:
        return self.looping and self._times >= _MOST_TURNS_IN_THE_LOOP


Entries = tuple[Unfit, ...]
"""At most one of each node, by name."""


def left_out(entries: Entries) -> dict[NodeId, str]:
    """The nodes that the job goes on without, each with the reason."""
    return {entry.node: entry.reason for entry in entries if entry.out}


def turn_of(entries: Entries, node: NodeId) -> int:
    """How often that node was left out and tried again."""
    return next((entry.turn for entry in entries if entry.node == node), 0)


def heard(entries: Entries, node: NodeId) -> Entries:
    """As ``node`` takes them that hears of the job for the first time: it is tried again, since
    what kept the job from it may have passed, unless that was looked at just before the job."""
    return entries if foreseen(entries, node) else again(entries, [node])


def foreseen(entries: Entries, node: NodeId) -> bool:
    """Whether a check of that node failed before the job was known."""
    return any(entry.node == node and entry.foreseen for entry in entries)


def showing_outside(entries: Iterable[Unfit]) -> NodeId | None:
    """By whom the job has to take it that the script keeps state outside of run.state: the first by
    name."""
    return next((entry.node for entry in entries if entry.proves_outside), None)


def again(entries: Entries, nodes: Iterable[NodeId]) -> Entries:
    """With these tried again, of those that are left out."""
    chosen = set(nodes)
    return tuple(entry.again() if entry.node in chosen else entry for entry in entries)


def merged(one: Iterable[Unfit], other: Iterable[Unfit]) -> Entries:
    """What both sides know."""
    newest: dict[NodeId, Unfit] = {}
    for entry in (*one, *other):
        known = newest.get(entry.node)
        newest[entry.node] = _joined(entry if known is None else known, entry)
    return tuple(newest[node] for node in sorted(newest))


def _joined(one: Unfit, other: Unfit) -> Unfit:
    """The later one, and what stays so."""
    found = later(one, other, _order)
    return replace(found, outside=one.shows_outside or other.shows_outside)


def _order(entry: Unfit) -> tuple[int, int, bool, bool, bool, str]:
    """Two sides of a partition may have left out the same node for another reason."""
    return entry.turn, entry.step, entry.looping, entry.unlike, entry.foreseen, entry.reason


def clipped(reason: str) -> str:
    """Of a traceback the end says what happened."""
    if len(reason) <= LONGEST_REASON:
        return reason
    first, _, rest = reason.partition("\n")
    return f"{first[:200]}\n…{rest[-LONGEST_REASON:]}"


def odd_ones(
    prints: Mapping[NodeId, Mapping[str, str]], trained: Iterable[NodeId]
) -> tuple[NodeId, ...]:
    """Whose fingerprint is another than that which most agree on: most of those that have
    ``trained`` already, or, while nobody has, of all. Of equally many the first node's counts."""
    groups: list[tuple[Mapping[str, str], list[NodeId]]] = []
    for node in sorted(prints):
        group = next((nodes for same, nodes in groups if same == prints[node]), None)
        if group is None:
            groups.append((prints[node], [node]))
        else:
            group.append(node)
    votes = set(trained) & prints.keys() or set(prints)
    right = max((nodes for _, nodes in groups), key=lambda nodes: len(votes & set(nodes)))
    return tuple(node for node in sorted(prints) if node not in right)


def agree(prints: Mapping[NodeId, Mapping[str, str]]) -> bool:
    """Whether any two say the same."""
    found = list(prints.values())
    return any(one == other for at, one in enumerate(found) for other in found[at + 1 :])
