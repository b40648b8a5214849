"""The members have left their world, and say what they hold; then the next one is planned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import assert_never

from elasticd.core.leading import comparing, making
from elasticd.core.leading.council import (
    Apart,
    Council,
    Fail,
    LeftOut,
    OlderState,
    OneOfMany,
    Plan,
    Renamed,
    Strain,
    Told,
    Wait,
    decide,
)
from elasticd.core.leading.office import Office
from elasticd.core.leading.oncpu import unable
from elasticd.core.leading.phases import differing
from elasticd.core.leading.phases.moves import Blame, Blames, Outcome, ToForming, ToWaiting
from elasticd.core.leading.phases.unfit import leave_out
from elasticd.core.leading.planning import Situation
from elasticd.core.words.worlds import Freeze, Holding
from elasticd.recovery.faults import RING_FAULTS
from elasticd.types import NO_TAG, NodeId, Point


@dataclass(slots=True)
class Freezing:
    office: Office
    since: float
    cause: str = ""
    """Why a world is left that nothing has broken."""
    serial: str = ""
    asked: set[NodeId] = field(default_factory=set)
    invited: set[NodeId] = field(default_factory=set)
    """All who were asked, be they waited for or not."""
    holdings: dict[NodeId, Holding] = field(default_factory=dict)
    why: str = ""

    def begin(self, nodes: Sequence[NodeId]) -> None:
        """Stop these."""
        self.serial = self.office.ctx.nonce()
        self.office.growth.stopped()
        self._ask(nodes)

    def _ask(self, nodes: Sequence[NodeId]) -> None:
        office = self.office
        self.asked.update(nodes)
        self.invited.update(nodes)
        for node in nodes:
            freeze = Freeze(office.view.epoch, office.job, self.serial, len(self.asked) == 1)
            office.ctx.send(node, freeze)

    def _further(self) -> list[NodeId]:
        """Newcomers that hold more than those turn out to hold who were asked: who had come as far,
        and gave it to them, may have lost it since."""
        office = self.office
        held = self._trusted({n: h for n, h in self.holdings.items() if h.able})
        furthest = max((h.point.step for h in held.values() if h.point is not None), default=-1)
        prepared = office.wishes.without_left_out(office.roster.prepared(furthest))
        return [n for n in prepared if n not in self.invited]

    def on_holding(self, node: NodeId, holding: Holding) -> bool:
        """Whether it answers what we asked."""
        if holding.serial != self.serial:
            return False
        self.holdings[node] = holding
        self.office.trust.heard(node, holding)
        return True

    def go_on(self) -> ToForming | ToWaiting | differing.Left | None:
        """Plan the next world once all have answered."""
        if not self.asked <= self.holdings.keys():
            return None
        if further := self._further():
            self.since = self.office.ctx.now
            # Who was asked alone may have no reducer yet, which a world of several needs.
            unready = [n for n in sorted(self.asked) if not self.holdings[n].host]
            for node in unready:
                del self.holdings[node]
            self._ask([*further, *unready])
            return None
        council = self._council()
        found = decide(council)
        seating = making.seated(self.office, found) if isinstance(found, Plan) else None
        kept = seating.kept if seating is not None else []
        if (differ := differing.left(self.office, self.holdings, kept)) is not None:
            return differ
        self.office.growth.compare(council.at.holdings)
        for told in found.told:
            self._tell(told)
        if isinstance(found, Plan) and seating is not None:
            late, others = self._unable(found, seating)
            if late and others and self.office.exactness.required:
                return self._do_without(late)
            if late:
                self.office.exactness.keeps_apart(late, others)
        if self.office.exactness.forbids:
            return Outcome("failed", self.office.exactness.forbids)
        match found:
            case Plan():
                assert seating is not None
                return self._carry_out(found, seating)
            case Wait(reason, rest_seconds):
                if rest_seconds:
                    self.office.account.rest()
                    self.office.tries.rest(rest_seconds)
                else:
                    self.office.tries.no_plan()
                return ToWaiting(reason)
            case Apart(odd, right):
                self.office.fitness.try_again(self.office.fitness.outnumbered & right)
                for node, reason in odd:
                    if (end := leave_out(self.office, node, reason)) is not None:
                        return end
                return self.go_on()
            case Fail(reason):
                return Outcome("failed", reason)
            case _:
                assert_never(found)

    def _unable(self, plan: Plan, seating: making.Seating) -> tuple[list[NodeId], list[NodeId]]:
        """Members whose build can't make updates where the next world makes them, and the others;
        none where any can."""
        members = seating.resume.members
        if not self.office.exactness.on_cpu.holds_for(plan.start):
            return [], [*members]
        late = unable(members, plan.holdings)
        return late, [node for node in members if node not in late]

    def _do_without(self, late: Sequence[NodeId]) -> ToForming | ToWaiting | differing.Left | None:
        """The job requires that all have the same bits."""
        for node in late:
            reason = (
                "this job's updates are made on the CPU, which its version of elasticd doesn't do:"
                f" upgrade it, and say 'elasticctl retry {self.office.job}'"
            )
            if (end := leave_out(self.office, node, reason)) is not None:
                return end
        return self.go_on()

    def _trusted(self, holdings: Mapping[NodeId, Holding]) -> dict[NodeId, Holding]:
        office = self.office
        worlds = office.roster.worlds(office.world)
        checkpoints = office.checkpoints
        apart = [
            w.generation for w in worlds if checkpoints.spoilt and not checkpoints.is_of_spoilt(w)
        ]
        return comparing.without_untaken(worlds, office.trust.all_trusted(holdings, apart))

    def _council(self) -> Council:
        office, ctx = self.office, self.office.ctx
        left_out = office.fitness.left_out
        able = {n: h for n, h in sorted(self.holdings.items()) if h.able and n not in left_out}
        situation = Situation(
            job=office.job,
            spec=office.spec,
            least=office.least,
            roster=office.roster,
            holdings=able,
            world=office.world,
            newest=office.newest,
            parents=office.checkpoints.parents,
            begun=office.checkpoints.survey.lineages(),
            committed=office.course.committed,
            recovering=office.account.recovery is not None,
            waited=office.waited_for_restore(),
            nonce=ctx.nonce,
            strict=ctx.strict,
            left=office.histories.left,
            ran=office.histories.ran,
            spoilt=office.checkpoints.spoilt,
            barred=self._barred(),
            keepers=tuple(sorted(office.keepers)),
            had=office.wishes.record.stored,
            rested=office.course.committed if office.account.resumes else -1,
        )
        return Council(
            situation,
            trusted=self._trusted(able),
            unwanted=office.wishes.unwanted,
            odd=frozenset(office.trust.tainted),
            heard=ctx.heard.get(office.job, NO_TAG),
            quiet_seconds=ctx.departures.quiet_at - ctx.now,
            strain=self._strain(),
        )

    def _barred(self) -> Point | None:
        """The state that the last world could not store, if there is nothing to go back to."""
        office = self.office
        if office.world is None or office.newest is not None:
            return None
        return office.checkpoints.survey.barred(office.world.generation)

    def _strain(self) -> Strain:
        office, account = self.office, self.office.account
        micro = office.roster.least_micro()
        return Strain(
            pieces=tuple(account.pieces),
            evidence=account.evidence(),
            unread=office.tries.unread,
            fruitless=account.fruitless,
            rest_seconds=office.tries.pause(account.tired) if account.tired else 0.0,
            resumes=account.resumes,
            raised=office.relief.weigh(account.pieces, office.course.committed, micro),
            doubted=account.recovery is not None and office.trust.ladder.rung() == "older",
            deadly=bool(office.trust.ladder.told),
            unsure=account.unsure,
        )

    def _tell(self, told: Told) -> None:
        ctx, job = self.office.ctx, self.office.job
        match told:
            case LeftOut(nodes, why):
                ctx.log("warning", "left out of the ring", nodes=list(nodes), why=why)
                ctx.emit("link_avoided", why, job, without=list(nodes))
            case OneOfMany(node):
                chosen = (
                    "states differ and no checkpoint is there to go back to: all take that of"
                    f" {node}, which may be the wrong one"
                )
                ctx.emit("state_chosen", chosen, job, culprit=node)
                self.office.exactness.lose(chosen)
            case Renamed(step):
                self.office.exactness.lose(
                    f"disks have another state of step {step} than the members, and no whole copy"
                    " of it: the members' is stored, which may be the wrong one"
                )
            case OlderState(newest_known):
                ctx.log("warning", "an older state has to do", newest_known=newest_known)
            case _:
                assert_never(told)

    def _carry_out(self, plan: Plan, seating: making.Seating) -> ToForming | Outcome:
        office, account, start = self.office, self.office.account, plan.start
        level, committed, last = office.relief.level, office.course.committed, office.world
        office.relief.settle(plan.raised, committed)
        given_back = office.relief.gives_back(last)
        if given_back or plan.raised is not None:
            # Steps take another time now.
            office.course.patience.forget()
            office.balance.speeds.forget()
        if plan.raised is not None and office.relief.rounds:
            office.exactness.lose(plan.raised.text)
            if office.exactness.forbids:
                return Outcome("failed", office.exactness.forbids)
        if start.manifest is not None and office.checkpoints.is_spoilt(start.manifest):
            step = start.manifest.step
            office.exactness.lose(
                f"no checkpoint on which all agreed is within reach: all go back to step {step},"
                " in whose state may be sums of who diverged"
            )
            if office.exactness.forbids:
                return Outcome("failed", office.exactness.forbids)
        if why := making.forgets(office, plan, seating):
            office.exactness.lose(why)
            if office.exactness.forbids:
                return Outcome("failed", office.exactness.forbids)
        if plan.goes_back and last is not None:
            office.trust.ladder.went_back()
            office.trust.distrust(last)
        if plan.in_vain:
            account.planned_in_vain()
        if plan.opens_recovery:
            account.open_restore(committed)
        if any(isinstance(told, OneOfMany) for told in plan.told):
            office.trust.states.choose(start.resume.point.stamp)
        account.diagnose(start.resume, last, office.trust.ladder.told)
        office.histories.chosen(start, office.roster.ran(last))
        if plan.raised is not None:
            office.relief.tell(level, plan.raised.text, last)
        elif given_back and last is not None:
            office.relief.tell_given_back(last)
        world = making.make_world(office, plan, seating, self.cause)
        office.trust.settled()
        account.settled()
        office.tries.planned()
        return ToForming(world, making.secret_of(office, plan, world))

    def expects(self, fault: str) -> bool:
        """Whether that is no fault of a world that is left though nothing has broken it: a ring
        breaks, too, because a neighbour has heard of its end sooner."""
        broke = fault in RING_FAULTS and fault != "reducer_lost"
        return broke and self.office.account.recovery is None

    def on_fault(self, blame: Blame, source: str | None) -> None:
        """Who has ended is not waited for."""
        if blame.ended:
            self.asked.discard(blame.culprit)
            self.holdings.pop(blame.culprit, None)

    def on_view(self, void: bool) -> ToWaiting:
        """What was asked in another view is void."""
        return ToWaiting("the view changed")

    def tick(self) -> Blames | None:
        """Do without members that say nothing."""
        waited = self.office.ctx.now - self.since
        if waited < self._limit():
            return None
        late = sorted(self.asked - self.holdings.keys())
        self.asked -= set(late)
        text = f"did not say what it holds for {waited:.0f} s"
        return Blames(tuple(Blame(node, "hang", f"{node} {text}") for node in late))

    def _limit(self) -> float:
        return 3 * self.office.ctx.timing.holding_seconds

    def deadlines(self) -> list[float]:
        return [self.since + self._limit()]
