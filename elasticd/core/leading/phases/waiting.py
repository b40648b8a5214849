"""Until a world can be tried: enough trainers are there, and what failed may be tried again."""

from __future__ import annotations

from dataclasses import dataclass, field

from elasticd.core.leading import routing
from elasticd.core.leading.office import Office
from elasticd.core.leading.phases.moves import Blame, Outcome, Rest, ToFreezing
from elasticd.core.leading.phases.unfit import may_run_elsewhere, try_unlike_again
from elasticd.core.leading.roster import HOLDING
from elasticd.counting import counted
from elasticd.types import NodeId

_PATIENT = 3.0
"""So many times as long as it did before a world that trains on may keep quiet."""


@dataclass(slots=True)
class Waiting:
    office: Office
    since: float
    why: str
    begun: int = field(init=False)
    """The last step that was committed when the wait began."""
    moved_at: float = field(init=False)
    longest: float = field(default=0.0, init=False)
    """Between two signs of life of the last world, in this wait."""

    def __post_init__(self) -> None:
        self.begun, self.moved_at = self.office.course.committed, self.since

    @property
    def trained(self) -> bool:
        """Whether the last world has made steps all the same: daemons are away, and their ranks are
        not. What had been cut, or was on its way, may still be told; more than that is news."""
        return self.office.course.committed > self.begun + 1

    @property
    def trains_on(self) -> bool:
        """Whether it still does."""
        return self.trained and self.may_train_on

    @property
    def may_train_on(self) -> bool:
        """Whether nobody knows yet if it does."""
        return bool(self._holding()) and self.office.ctx.now < self._stops

    @property
    def _stops(self) -> float:
        """When it trains no more, if nothing moves until then."""
        quiet = max(self.office.reduce_seconds(), _PATIENT * self.longest)
        return max(self.since, self.office.course.moved_at) + quiet

    def go_on(self) -> ToFreezing | Outcome | Rest | None:
        """Ask the members what they hold once a world can be made of them."""
        office = self.office
        holding = self._holding()
        if office.wishes.paused and not holding:
            return None if office.silent(self.since) else self._rest()
        if office.ctx.now < office.tries.soonest:
            return None
        if silent := office.silent(self.since):
            self.why = f"waiting to hear from {', '.join(silent)}"
            return None
        least = office.least
        ready = [n for n in office.roster.trainers("ready") if n not in holding]
        able = holding + office.wishes.without_unwanted(ready)
        if len(able) < least:
            if not holding and office.ctx.now - self.since >= office.ctx.timing.restore_seconds:
                try_unlike_again(office)
            self.why = f"{len(able)} of at least {counted(least, 'member is', 'members are')} ready"
            if drained := sorted(office.wishes.standing.leaving & {*office.view.members}):
                self.why += f"; drained: {', '.join(drained)}"
            self.why += office.roster.troubles()
            away = may_run_elsewhere(office, office.view.members)
            if self.trains_on:
                self.why = self._without_daemons()
            elif away:
                self.why += f"; {', '.join(away)} may train it elsewhere"
            hopeless = office.roster.hopeless(office.wishes.standing.idle)
            return Outcome("failed", self.why) if hopeless and not away else None
        unsettled = office.wishes.without_left_out(office.roster.unsettled())
        if not holding and unsettled and office.ctx.now - self.since < self._patience():
            self.why = f"trainers are starting on {', '.join(unsettled)}"
            return None
        if office.trust.ladder.rung() == "alone":
            # Nobody joins at the end of a step that kills: another node is to be tried now, and the
            # last one that has the state is not, while others are about to be there.
            starting = office.wishes.without_left_out(office.roster.unsettled())
            if len(able) == 1 and starting and office.ctx.now - self.since < self._patience():
                self.why = f"trainers are starting on {', '.join(starting)}"
                return None
            asked = [n for n in able if n in holding or office.trust.fit(n)]
            return ToFreezing(tuple(asked or able))
        fit = [n for n in holding if office.trust.fit(n)]
        enough = (s for s in (fit, holding) if routing.most_in_a_ring(office.roster, s) >= least)
        return ToFreezing(tuple(next(enough, able)))

    def _holding(self) -> list[NodeId]:
        """Members that were in a world, and newcomers that hold more than any of those."""
        office = self.office
        holding = office.wishes.without_left_out(office.roster.trainers(*HOLDING))
        furthest = max(map(office.reached, holding), default=-1)
        return holding + office.wishes.without_left_out(office.roster.prepared(furthest))

    def _without_daemons(self) -> str:
        world, there = self.office.world, self.office.view.members
        away = [n for n in (world.members if world is not None else ()) if n not in there]
        return (
            f"it trains on without {' and '.join(away)}, whose daemons are away: until they are"
            " back no checkpoint becomes consistent"
        )

    def _patience(self) -> float:
        """Seconds that trainers which start are waited for."""
        timing, office = self.office.ctx.timing, self.office
        has_history = office.newest is not None or office.roster.has_stored()
        return timing.restore_seconds if has_history else timing.start_seconds

    def _rest(self) -> Rest:
        stored, world = self.office.stored_step, self.office.world
        self.office.account.tell_faults(world)
        if world is None:  # nobody here knows more than the record
            record = self.office.wishes.record
            return Rest(max(stored, record.step), record.rested)
        # What no trainer holds any more, and no disk has, is lost: who resumes it tells that.
        return Rest(max(stored, self.office.course.committed), str(world.generation))

    def on_fault(self, blame: Blame, source: str | None) -> None:
        """The world is left already."""

    def on_view(self, void: bool) -> None:
        """Nothing was asked."""

    def tick(self) -> None:
        """See how often the last world moves."""
        if (moved := self.office.course.moved_at) > self.moved_at:
            self.longest = max(self.longest, moved - self.moved_at)
            self.moved_at = moved

    def deadlines(self) -> list[float]:
        return [*patience_deadlines(self.office, self.since), self._stops]


def patience_deadlines(office: Office, since: float) -> list[float]:
    """When it is no longer worth waiting for members, for trainers that start, for states."""
    timing = office.ctx.timing
    waits = (timing.holding_seconds, timing.start_seconds, timing.restore_seconds)
    return [*(since + wait for wait in waits), office.account.since + timing.restore_seconds]
