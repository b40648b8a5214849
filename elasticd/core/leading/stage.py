"""In which phase one job is, and what follows from what that has heard."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import assert_never

from elasticd.core.engines.backends import leader_engine
from elasticd.core.leading import behind, poison
from elasticd.core.leading.office import Office
from elasticd.core.leading.phases import unfit
from elasticd.core.leading.phases.closing import Closing, failed_behind, is_over
from elasticd.core.leading.phases.forming import Forming
from elasticd.core.leading.phases.freezing import Freezing
from elasticd.core.leading.phases.moves import (
    Blame,
    Blames,
    Inherited,
    Move,
    Next,
    Oriented,
    Outcome,
    Rest,
    ToClosing,
    ToForming,
    ToFreezing,
    ToRunning,
    ToWaiting,
)
from elasticd.core.leading.phases.orienting import Orienting
from elasticd.core.leading.phases.running import Running
from elasticd.core.leading.phases.waiting import Waiting
from elasticd.core.leading.phases.whole import Whole
from elasticd.core.leading.summary import Bulletin
from elasticd.core.words.shards import Digest
from elasticd.recovery import faults
from elasticd.types import NodeId

Phase = Orienting | Waiting | Freezing | Forming | Running | Closing


@dataclass(slots=True)
class Stage:
    """Of one job, while its driver lives."""

    office: Office
    phase: Phase
    end: Outcome | Rest | None = None
    """Once the job has ended, or rests."""
    bulletin: Bulletin = field(default_factory=Bulletin)

    @property
    def waits(self) -> bool:
        """Whether nothing is asked of the members."""
        return isinstance(self.phase, Orienting | Waiting)

    @property
    def trains(self) -> bool:
        """Whether the last world is whole, or makes steps though it can't be seen to be."""
        phase = self.phase
        return isinstance(phase, Whole) or (isinstance(phase, Waiting) and phase.trains_on)

    @property
    def ready(self) -> Collection[NodeId]:
        """Who may compute in a world that forms."""
        return self.phase.ready if isinstance(self.phase, Forming) else ()

    def go_on(self) -> None:
        """As far as what is known allows."""
        if self.end is not None:
            return
        if isinstance(self.phase, Orienting):
            self.follow(self.phase.go_on())
            if isinstance(self.phase, Orienting):
                return
        if (end := unfit.judge(self.office)) is not None:
            self.follow(end)
            return
        if self.office.advance():
            self.bulletin.changed()
        if why := failed_behind(self.office):
            self.fail(why)
            return
        if is_over(self.office, self.phase.since):
            self.end = Outcome("finished", behind.lacking(self.office))
            return
        found = self.phase.go_on()
        self.follow(found)
        if isinstance(found, Blames) and isinstance(self.phase, Freezing):
            self.go_on()  # what is held counts for less now

    def fail(self, reason: str) -> None:
        """The job can't go on."""
        if not isinstance(self.end, Outcome):
            self.end = Outcome("failed", reason)

    def orient_again(self) -> None:
        """Another world is known than the one that is waited for to be made again."""
        self.phase = Orienting(self.office, self.phase.since, self.phase.why)
        # What is told of its checkpoints before we take it over counts.
        self.office.checkpoints.forget_world()

    def follow(self, found: Next | None) -> None:
        """Carry out what follows from what a phase has heard."""
        if isinstance(found, Move):
            self._enter(found)
            return
        match found:
            case None:
                pass
            case Outcome(_, reason):
                self.fail(reason)
            case Rest():
                self.end = self.end or found
            case Blames(blames):
                self.blame(blames)
            case _:
                assert_never(found)

    def _enter(self, move: Move) -> None:
        """Go over to another phase."""
        office, before, now = self.office, self.phase, self.office.ctx.now
        if isinstance(before, Waiting) and before.trained:
            office.account.trained(office.course.moved_at)
        match move:
            case Oriented():
                self.phase = Waiting(office, before.since, before.why)
                return
            case Inherited():
                self._inherit(move)
                return
            case ToClosing():
                assert office.world is not None
                self.phase = Closing(office, before.since, office.world, before.why)
                self.follow(self.phase.go_on())
                return
            case ToWaiting(why):
                self.phase = Waiting(office, now, why)
            case ToFreezing(nodes, cause):
                # Where none could be made for a while this is one more try: it waits as it did.
                why = before.why if office.tries.planless else ""
                self.phase = Freezing(office, now, cause, why=why)
                self.phase.begin(nodes)
            case ToForming(world, secret):
                office.begin(world)
                poison.plan(office, world)
                engine = leader_engine(office.spec.world.backend, office.ctx, world)
                self.phase = Forming(office, now, world, engine, secret)
                self.phase.begin()
            case ToRunning():
                assert office.world is not None
                self.phase = Running(office, now, office.world)
                poison.begin(office, office.world)
                self._compare()
                if isinstance(before, Forming):
                    self.go_on()
            case _:
                assert_never(move)
        self.bulletin.changed()

    def _inherit(self, found: Inherited) -> None:
        """Go on with a world that its leader's loss, or another's, has broken or left half done."""
        office, before = self.office, self.phase
        assert office.world is not None
        self.phase = Running(office, before.since, office.world, before.why)
        poison.inherit(office, office.world)
        self.blame(found.blames)
        if found.otherwise is not None and isinstance(self.phase, Running):
            self.blame([found.otherwise])

    def compare(self, node: NodeId, told: Digest) -> None:
        """What a member's parameters are like."""
        self.office.trust.states.hear(node, told)
        self._compare()

    def _compare(self) -> None:
        """By what members have told, perhaps before their world counted as running."""
        found = self.phase.compare() if isinstance(self.phase, Whole) else None
        if found is not None:
            self.follow(found)
            self.go_on()

    def blame(self, blames: Iterable[Blame]) -> None:
        """Take in evidence, and leave a world that it breaks."""
        for blame in blames:
            self._blame(blame)

    def _blame(self, blame: Blame) -> None:
        office, culprit = self.office, blame.culprit
        if culprit in office.course.ends.come:
            return  # Its script has come to its end: nothing of it can break any more.
        if culprit in office.course.released and office.somebody_leaves():
            return  # It has left the loop, or was about to: nothing is broken by that.
        seen = office.ctx.now if blame.seen_at is None else blame.seen_at
        piece = faults.Evidence(culprit, blame.fault, blame.text, seen, blame.confidence)
        office.account.add(piece, office.course.committed)
        source = office.course.source_of(culprit)
        if source is not None:
            if blame.fault == "state_unavailable" and source == "checkpoint":
                office.tries.not_read()
            if blame.fault == "stranger" and isinstance(self.phase, Forming):
                office.tries.met_stranger()
            office.account.count()
            if blame.fault == "peer_lost" and (
                why := poison.count_lost(office, culprit, blame.text, self.ready)
            ):
                self.fail(why)
        self.follow(self.phase.on_fault(blame, source))

    def deadlines(self) -> list[float]:
        """When something may follow from time alone."""
        office = self.office
        times = [*office.tries.deadlines(), *office.checkpoints.deadlines()]
        times += office.fitness.deadlines()
        return [*times, *self.phase.deadlines()]

    def state(self) -> str:
        """What people see of the phase: running, recovering or parked."""
        office, phase = self.office, self.phase
        if self.trains:
            return "running"
        unsure = isinstance(phase, Waiting) and phase.may_train_on
        short = office.is_short(phase.since) and not unsure
        if self.waits and (short or office.tries.resting):
            return "parked"
        if office.tries.planless and isinstance(phase, Waiting | Freezing) and not unsure:
            return "parked"
        # A job that starts, goes on after a pause or moves its shares forms a world, too.
        return "recovering" if office.account.recovery is not None else "running"
