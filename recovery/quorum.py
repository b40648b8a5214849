"""Which view may train when at most one may: dynamic-linear voting. Pure.

A view is primary only with a majority of the last primary view that was formed, and of every later
one that some participant journalled as attempted and that is not known to have failed; half of it
is enough with its first member. So of two sides of a cut at most one goes on, and a cluster may
shrink one by one to a single node and still know that it is the only one.

Two steps make a primary view. Everyone promises to follow nothing older and says what it remembers
(:class:`History`); only then, and only if this module agrees, everyone journals the attempt, and
when all have, the view is formed. A member that crashed in between doesn't know whether it was.

The method is that of Yeger Lotem, Keidar and Dolev, "Dynamic voting for consistent primary
components" (PODC 1997), the tie-break that of Jajodia and Mutchler's dynamic-linear voting.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from elasticd.counting import counted
from elasticd.types import NO_TAG, NodeId, Tag

PREFIX = 'partition = "strict": '
MAX_SINCE = 16
"""Of older promises a node that lost its journal says that it knows nothing, which is safe."""


@dataclass(frozen=True, slots=True)
class PrimaryView:
    """A primary view, formed or attempted. ``members`` are sorted; the first one breaks ties."""

    epoch: Tag
    members: tuple[NodeId, ...]


@dataclass(frozen=True, slots=True)
class History:
    """What one node remembers, from its journal, before it promised the view that is voted on."""

    born: Tag | None = None
    """The first epoch that it ever promised to follow: of older ones it can't know. None: it has no
    journal yet, or not any more."""
    formed: PrimaryView | None = None
    """The newest primary view that it knows to have formed with it."""
    attempts: tuple[PrimaryView, ...] = ()
    """Later ones that it journalled as attempted, oldest first."""
    configured: int = 1
    """How many nodes the cluster has as this one is configured, itself included."""
    lost: bool = False
    """It knows that its journal was lost, and no primary view was formed with it since."""
    since: tuple[Tag, ...] = ()
    """If so: the newest epochs that it has promised since."""

    def took_part(self, session: PrimaryView) -> bool:
        """Whether it journalled the attempt, or one that makes it irrelevant."""
        later = self.formed is not None and self.formed.epoch >= session.epoch
        return later or session in self.attempts

    def forgot(self, session: PrimaryView) -> bool:
        """Whether it lost its disk since: every member of a session promised it first.

        Who starts anew among nodes that know as little promises low epochs again, so that ``born``
        alone does not tell.
        """
        unknown = self.lost and session.epoch not in self.since
        return unknown or self.born is None or self.born > session.epoch


@dataclass(frozen=True, slots=True)
class Decision:
    """``reason`` is a sentence; ``away`` are nodes that may still train in an older view."""

    primary: bool
    reason: str
    away: tuple[NodeId, ...] = ()


def decide(here: Mapping[NodeId, History]) -> Decision:
    """Whether a view of just the nodes ``here`` may be primary.

    Every one of them has promised the view that is voted on, so that none of them can complete an
    older one any more.
    """
    formed = [history.formed for history in here.values() if history.formed is not None]
    last = max(formed, key=lambda session: session.epoch, default=None)
    attempts = undecided(here, last)
    sessions = attempts if last is None else [last, *attempts]
    away = tuple(sorted({node for s in sessions for node in s.members} - here.keys()))
    if last is None and not (first := _first(here)).primary:
        return first
    counts = [_Count.of(session, here) for session in sessions]
    for count in counts:
        if not count.enough:
            return Decision(False, PREFIX + count.sentence(count.session is last), away)
    if last is None:
        return replace(_first(here), away=away)
    return Decision(True, PREFIX + counts[0].sentence(last=True), away)


def undecided(here: Mapping[NodeId, History], last: PrimaryView | None) -> list[PrimaryView]:
    """The attempts, oldest first, of which nobody here can say that they failed."""
    after = last.epoch if last is not None else NO_TAG
    found = {s.epoch: s for h in here.values() for s in h.attempts if s.epoch > after}
    return [found[epoch] for epoch in sorted(found) if not _failed(found[epoch], here)]


def holds(members: tuple[NodeId, ...], present: Collection[NodeId]) -> bool:
    """Whether the nodes ``present`` are a majority of ``members``, or half with the first of it."""
    there = sum(node in present for node in members)
    return 2 * there > len(members) or (2 * there == len(members) and members[0] in present)


def _failed(attempt: PrimaryView, here: Mapping[NodeId, History]) -> bool:
    """Whether an attempt that nobody here has seen formed hasn't, nor ever will.

    All its members must journal it first: one that hasn't never will, having promised a later view.
    If all are here, the one that would have formed it is.
    """
    known = [here[n] for n in attempt.members if n in here and not here[n].forgot(attempt)]
    everybody = len(known) == len(attempt.members)
    return everybody or any(not history.took_part(attempt) for history in known)


@dataclass(frozen=True, slots=True)
class _Count:
    """Which members of a session are here and remember it."""

    session: PrimaryView
    there: frozenset[NodeId]
    forgot: tuple[NodeId, ...]
    """Those that are here and can't say what they did in it: their disk was lost."""

    @staticmethod
    def of(session: PrimaryView, here: Mapping[NodeId, History]) -> _Count:
        present = [node for node in session.members if node in here]
        there = frozenset(node for node in present if here[node].took_part(session))
        return _Count(session, there, tuple(n for n in present if here[n].forgot(session)))

    @property
    def enough(self) -> bool:
        return holds(self.session.members, self.there)

    def sentence(self, last: bool) -> str:
        total, first = len(self.session.members), self.session.members[0]
        whose = "the last view's" if last else f"undecided view {self.session.epoch}'s"
        text = f"{len(self.there)} of {whose} {counted(total, 'member is', 'members are')} here"
        if self.forgot:
            text += f", beside {', '.join(self.forgot)}, which forgot"
        if 2 * len(self.there) == total:
            return text + f", {'with' if self.enough else 'without'} {first}, which breaks the tie"
        return text if self.enough else f"{text}, {total // 2 + 1} are needed"


def _first(here: Mapping[NodeId, History]) -> Decision:
    """Of a first view: two halves of a new cluster have no member that breaks the tie.

    A node that lost its journal may have been in a view that trains on without it. It counts only
    if everybody is here.
    """
    configured = max((history.configured for history in here.values()), default=1)
    needed = configured // 2 + 1
    lost = sorted(node for node, history in here.items() if history.lost)
    text = (
        f"{len(here)} of {counted(configured, 'configured node is', 'configured nodes are')} here"
    )
    if lost:
        text += f", of which {', '.join(lost)} forgot"
    if len(here) - len(lost) >= needed or len(here) >= max(configured, needed):
        return Decision(True, f"{PREFIX}{text}, for a first view")
    needed_text = "all" if lost else str(needed)
    return Decision(False, f"{PREFIX}{text}, {needed_text} are needed for a first view")
