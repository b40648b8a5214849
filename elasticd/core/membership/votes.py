"""What a node remembers of primary views, and how it votes (``partition = "strict"``).

The rule itself is elasticd.recovery.quorum. What is kept here mirrors the journal.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from elasticd.core.context import Context
from elasticd.core.words.records import Heard, View
from elasticd.recovery import quorum
from elasticd.recovery.quorum import History, PrimaryView
from elasticd.types import NO_TAG, JobId, NodeId, Tag


@dataclass(slots=True)
class Votes:
    ctx: Context
    history: History = field(default_factory=History)
    leavers: dict[NodeId, float] = field(default_factory=dict)
    """Members of the view that leave on purpose and may still vote for the next one, until when."""
    owed: bool = False
    """We leave, and the others may need our vote to go on."""

    @staticmethod
    def of(
        ctx: Context,
        configured: int,
        born: Tag | None,
        formed: View | None,
        attempts: tuple[View, ...],
        lost: bool = False,
        since: tuple[Tag, ...] = (),
    ) -> Votes:
        last = _session(formed) if formed is not None else None
        tried = tuple(_session(view) for view in attempts)
        return Votes(ctx, History(born, last, tried, configured, lost, since))

    def promise(self, view: View) -> None:
        """Follow nothing older than ``view``; journal that it was attempted, if it is primary."""
        if self.history.born is None:
            self.history = replace(self.history, born=view.epoch)
        if self.history.lost and view.epoch not in self.history.since:
            since = (*self.history.since, view.epoch)[-quorum.MAX_SINCE :]
            self.history = replace(self.history, since=since)
        if not self.ctx.strict or not view.primary:
            self.ctx.persist("view_attempt", view)
            return
        self.ctx.persist("primary_attempt", view)
        self.owed = False
        if _session(view) not in self.history.attempts:
            attempts = (*self.history.attempts, _session(view))
            self.history = replace(self.history, attempts=attempts)

    def form(self, view: View) -> None:
        """``view`` is ours now."""
        self.leavers.clear()
        if not self.ctx.strict or not view.primary:
            self.ctx.persist("view_formed", view)
            return
        self.ctx.persist("primary_formed", view)
        later = tuple(a for a in self.history.attempts if a.epoch > view.epoch)
        self.history = replace(
            self.history, formed=_session(view), attempts=later, lost=False, since=()
        )

    def heard(self) -> tuple[Heard, ...]:
        """The newest worlds that this node has heard of."""
        return tuple(Heard(job, generation) for job, generation in sorted(self.ctx.heard.items()))

    def decide(
        self, view: View, histories: Mapping[NodeId, History], heard: Iterable[Heard]
    ) -> View:
        """``view``, primary or not, when all its members have said what they remember."""
        found = quorum.decide(histories)
        newest: dict[JobId, Tag] = {}
        for each in heard:
            newest[each.job] = max(newest.get(each.job, NO_TAG), each.generation)
        worlds = tuple(Heard(job, newest[job]) for job in sorted(newest))
        # What a node that leaves has started may outlive its daemon for a while.
        away = tuple(sorted({*found.away, *view.voters}))
        return replace(view, primary=found.primary, why=found.reason, away=away, heard=worlds)

    # --- who goes on purpose ----------------------------------------------------------------------

    def leave(self, view: View | None) -> None:
        """We leave ``view``: of two nodes the other could not go on without our vote."""
        self.leavers.clear()
        self.owed = self._counts(view) and view is not None and len(view.members) > 1

    def stay(self) -> None:
        """We do not leave after all."""
        self.owed = False

    def leaves(self, node: NodeId, view: View | None) -> None:
        """A node says that it leaves ``view``, and waits a moment for the vote without it."""
        if self._counts(view) and view is not None and node in view.members:
            self.leavers[node] = self.ctx.now + self.ctx.timing.ballot_seconds

    def gone(self, node: NodeId) -> bool:
        """``node`` votes no more. True if it would have."""
        return self.leavers.pop(node, None) is not None

    def tick(self) -> None:
        for node in [n for n, until in self.leavers.items() if self.ctx.now >= until]:
            del self.leavers[node]

    def _counts(self, view: View | None) -> bool:
        return self.ctx.strict and view is not None and view.primary

    def lost(self, view: View | None, living: Collection[NodeId]) -> str:
        """Why a primary view is none any more although no other was formed, or nothing."""
        if not self._counts(view) or view is None:
            return ""
        there = sum(node in living for node in view.members)
        if quorum.holds(view.members, {*living, *self.leavers}):
            return ""
        return f"{quorum.PREFIX}{there} of the view's {len(view.members)} members are within reach"


def _session(view: View) -> PrimaryView:
    return PrimaryView(view.epoch, view.members)
