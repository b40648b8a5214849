"""What a node remembers of primary views, and how it votes (``partition = "strict"``).

The rule itself is elasticd.recovery.quorum. What is kept here mirrors the journal.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from elasticd.core.context import Context
from elasticd.core.messages import Heard, View
from elasticd.recovery import quorum
from elasticd.recovery.quorum import History, Session
from elasticd.types import NO_TAG, JobId, NodeId, Tag


@dataclass(slots=True)
class Votes:
    ctx: Context
    history: History = field(default_factory=History)

    @staticmethod
    def of(
        ctx: Context,
        configured: int,
        born: Tag | None,
        formed: View | None,
        attempts: tuple[View, ...],
    ) -> Votes:
        last = _session(formed) if formed is not None else None
        tried = tuple(_session(view) for view in attempts)
        return Votes(ctx, History(born, last, tried, configured))

    def promise(self, view: View) -> None:
        """Follow nothing older than ``view``; journal that it was attempted, if it is primary."""
        if self.history.born is None:
            self.history = replace(self.history, born=view.epoch)
        if not self.ctx.strict or not view.primary:
            self.ctx.persist("view_attempt", view)
            return
        self.ctx.persist("primary_attempt", view)
        if _session(view) not in self.history.attempts:
            attempts = (*self.history.attempts, _session(view))
            self.history = replace(self.history, attempts=attempts)

    def form(self, view: View) -> None:
        """``view`` is ours now."""
        if not self.ctx.strict or not view.primary:
            self.ctx.persist("view_formed", view)
            return
        self.ctx.persist("primary_formed", view)
        later = tuple(a for a in self.history.attempts if a.epoch > view.epoch)
        self.history = replace(self.history, formed=_session(view), attempts=later)

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
        return replace(view, primary=found.primary, why=found.reason, away=found.away, heard=worlds)

    def lost(self, view: View | None, living: Collection[NodeId]) -> str:
        """Why a primary view is none any more although no other was formed, or nothing."""
        if not self.ctx.strict or view is None or not view.primary:
            return ""
        if quorum.holds(view.members, living):
            return ""
        there = sum(node in living for node in view.members)
        return f"{quorum.PREFIX}{there} of the view's {len(view.members)} members are within reach"


def _session(view: View) -> Session:
    return Session(view.epoch, view.members)
