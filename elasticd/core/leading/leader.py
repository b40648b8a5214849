"""The leader's part in one job: forms its worlds, notices faults, recovers, lets members in, ends
it.

The job is in one phase at a time (stage.py, phases/), which hears what concerns it. What outlives a
phase is in the :class:`Office`. Rebuilt from what the members report whenever a leader is elected;
nothing here has to survive.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, assert_never

from elasticd.checkpoints.manifest import Manifest
from elasticd.core.context import Context
from elasticd.core.jobs.nodes import ALL_ALIKE, NodeDuties
from elasticd.core.leading import poison, summary
from elasticd.core.leading.office import Office
from elasticd.core.leading.phases.evidence import of_lost
from elasticd.core.leading.phases.forming import Forming
from elasticd.core.leading.phases.freezing import Freezing
from elasticd.core.leading.phases.moves import Blame, Outcome, Rest
from elasticd.core.leading.phases.orienting import Orienting
from elasticd.core.leading.phases.running import Running
from elasticd.core.leading.phases.waiting import Waiting
from elasticd.core.leading.phases.whole import Whole
from elasticd.core.leading.roster import HOLDING
from elasticd.core.leading.stage import Stage
from elasticd.core.leading.turns import Stall
from elasticd.core.words.records import JobRecord, View, World, relief_of
from elasticd.core.words.shards import Digest, ManifestStored, ShardsFailed, ShardsWritten
from elasticd.core.words.tables import Summary
from elasticd.core.words.worlds import (
    Counted,
    Fault,
    Holding,
    Lent,
    MemberStatus,
    OfForming,
    Prepared,
    Pressed,
    Progress,
    Rechecked,
    Returned,
    Sampled,
    ToLeader,
)
from elasticd.recovery.exactness import weightier
from elasticd.recovery.fitness import merged
from elasticd.recovery.lineages import decided
from elasticd.recovery.origin import Origin
from elasticd.recovery.relief import Cut
from elasticd.types import NodeId, Tag


@dataclass(slots=True)
class Driver:
    office: Office
    stage: Stage
    recalled: JobRecord | None = None
    """The record of which we know all."""
    stall: Stall | None = None
    """Too few members are there for a world, or none can be made of them, and it waits."""

    @classmethod
    def of(cls, ctx: Context, record: JobRecord, view: View) -> Driver:
        """The leader of ``view`` begins to drive a job."""
        office = Office.of(ctx, record, view)
        return cls(office, Stage(office, Orienting(office, ctx.now, "trainers are starting")))

    # --- what the node asks -----------------------------------------------------------------------

    @property
    def newest(self) -> Manifest | None:
        """The newest consistent checkpoint."""
        return self.office.newest

    @property
    def world(self) -> World | None:
        """The last world that is known of."""
        return self.office.world

    @property
    def plain(self) -> bool:
        """A script with a group of its own: its steps here are rounds of news."""
        return self.office.spec.plain is not None

    @property
    def committed(self) -> int:
        """The last step that every member has applied."""
        return self.office.course.committed

    @property
    def forming(self) -> bool:
        """Whether a world is being formed."""
        return isinstance(self.stage.phase, Forming)

    @property
    def end(self) -> Outcome | Rest | None:
        """Once the job has ended, or rests; the node writes it into the job's record."""
        return self.stage.end

    def cut_of(self, world: World) -> Cut:
        """Into which grains a global batch is cut in ``world``."""
        return self.office.relief.cut(world.relief)

    def want(
        self, record: JobRecord, away: frozenset[NodeId], standing: NodeDuties = ALL_ALIKE
    ) -> None:
        """What operators want of the job, who is away, and what nodes do less than others."""
        self.office.wishes.want(record, away, standing)

    def measured(self, seconds: Mapping[NodeId, float], reason: str) -> None:
        """How fast nodes are, as it was measured before the first world was formed."""
        if self.world is None:
            self.office.balance.foresee(seconds, reason)

    def relieved(self, record: JobRecord) -> JobRecord:
        """The record with what is given up for want of memory."""
        relief = self.office.relief
        turn, level = max(relief_of(record), (relief.turn, relief.level))
        return replace(record, relief=level, relief_turn=turn)

    def historied(self, record: JobRecord) -> JobRecord:
        """The record with how far histories went, which were left, why the job isn't exact, where
        its updates are made, and which nodes it goes on without."""
        past, exactness = self.office.histories, self.office.exactness
        fitness = self.office.fitness
        began, origin = self._beginning(record)
        return replace(
            record, left=past.left, ran=past.ran, inexact=weightier(record.inexact, exactness.lost),
            unfit=merged(record.unfit, fitness.entries), served=tuple(sorted(fitness.served)),
            on_cpu=decided(record.on_cpu, exactness.on_cpu.told),
            began=began, origin=origin, stored=record.stored or self.office.stored_step,
        )  # fmt: skip

    def _beginning(self, record: JobRecord) -> tuple[Tag, Origin]:
        """When the job began, and what it was built of; before a step is taken it has not."""
        kept, exactness = (record.began, record.origin), self.office.exactness
        ours = exactness.began, exactness.origin
        return max(kept, ours) if self.office.course.committed > 0 else kept

    def recall(self, record: JobRecord) -> None:
        """The record may tell more than we know."""
        if record != self.recalled:
            self.recalled = record
            self.office.recall(record)

    # --- what is heard ----------------------------------------------------------------------------

    def hear(self, node: NodeId, message: ToLeader) -> None:
        """A member's word about the job."""
        office, stage, phase = self.office, self.stage, self.stage.phase
        if isinstance(message, OfForming):
            if isinstance(phase, Forming):
                stage.follow(phase.hear(node, message))
            return
        match message:
            case MemberStatus():
                self._on_status(node, message)
            case Fault():
                self._on_fault(node, message)
            case Progress():
                self._on_progress(node, message)
            case Holding():
                office.ctx.saw(message.counter)
                if isinstance(phase, Freezing) and phase.on_holding(node, message):
                    stage.go_on()
            case Lent():
                office.growth.on_lent(node, message)
            case Prepared():
                office.growth.on_prepared(node, message)
                office.trust.lend(node, message)
            case Pressed():
                if office.course.runs(message.generation):
                    office.relief.pressed(node, message.reason)
            case Digest():
                stage.compare(node, message)
            case Rechecked():
                if isinstance(phase, Whole):
                    stage.follow(phase.on_rechecked(node, message))
            case Returned() | Counted():
                office.course.calls.hear(node, message)
                stage.go_on()
            case Sampled():
                office.exactness.sampled(node, message)
                stage.go_on()
            case ShardsWritten() | ShardsFailed() | ManifestStored():
                if node in office.view.members:
                    self._on_stored(node, message)
            case _:
                assert_never(message)

    def _on_status(self, node: NodeId, status: MemberStatus) -> None:
        office, stage, course = self.office, self.stage, self.office.course
        if status.epoch != office.view.epoch:
            return
        office.ctx.saw(status.counter)
        office.hear(node, status)
        if not office.silent(stage.phase.since):
            office.checkpoints.learn(office.roster.stored())
        office.checkpoints.locate(node, status.domain)
        stage.bulletin.changed()
        office.tries.heard()
        if status.fatal:
            stage.fail(status.fatal)
        world = course.world
        if world is not None and status.world is not None:
            if status.world.generation == world.generation:
                course.heard_of(status.committed)
            elif status.world.generation > world.generation and stage.waits:
                # The other side of a partition went on while we waited.
                stage.orient_again()
        if isinstance(stage.phase, Whole):
            stage.follow(stage.phase.on_status(node, status))
        stage.go_on()

    def _on_fault(self, node: NodeId, fault: Fault) -> None:
        office, stage, world = self.office, self.stage, self.office.world
        if fault.fatal:
            stage.fail(fault.fatal)
            return
        exited = fault.fault == "worker_exit" or fault.status is not None
        if exited:
            office.roster.trainer_ended(node, fault.failing)
        if fault.failing is not None and office.course.source_of(node) is None:
            stage.go_on()  # it breaks nothing
            return
        if isinstance(stage.phase, Orienting):
            stage.phase.note(node, fault)
            return
        stale = world is not None and fault.generation < world.generation
        expected = isinstance(stage.phase, Freezing) and stage.phase.expects(fault.fault)
        if (stale and not exited) or expected:
            return
        why = office.trust.count(fault, self.committed + 1)
        why = why or poison.count(office, fault, stage.ready)
        if why and fault.failing is None:
            stage.fail(why)
        seen, text = office.ctx.now - fault.age_seconds, fault.evidence
        members, at = world.members if world is not None else (), fault.stranger_at
        culprit = members[at] if 0 <= at < len(members) else fault.culprit
        stage.blame([Blame(culprit, fault.sign, text, seen, exited, fault.confidence)])
        stage.go_on()

    def _on_progress(self, node: NodeId, progress: Progress) -> None:
        office, stage = self.office, self.stage
        if isinstance(stage.phase, Orienting):
            # Of a world, perhaps, that we have yet to hear of.
            office.course.early(node, progress)
        if not office.course.runs(progress.generation):
            return
        further = office.saw(node, progress)
        if further and isinstance(stage.phase, Running):
            stage.follow(stage.phase.at_boundary())
        if isinstance(stage.phase, Whole) and stage.phase.watches:
            stage.go_on()
        stage.bulletin.changed()

    def _on_stored(
        self, node: NodeId, message: ShardsWritten | ShardsFailed | ManifestStored
    ) -> None:
        match message:
            case ShardsWritten():
                majority = not self.office.restores
                excused = self.office.may_be_apart
                self.office.checkpoints.on_shards(node, message, majority, excused)
                if (told := message.own()) is not None:
                    self.stage.compare(node, told)
            case ShardsFailed():
                self.office.checkpoints.on_failed(node, message)
            case ManifestStored():
                self.office.checkpoints.on_stored(node, message)
            case _:
                assert_never(message)
        self.stage.go_on()

    def on_view(
        self, view: View, reborn: tuple[NodeId, ...], missed: tuple[NodeId, ...] = ()
    ) -> None:
        """A new view under the same leader: what was asked in the old one is void.

        ``reborn`` are members whose daemon was started again, ``missed`` those that may have missed
        an order. A world that is forming goes on forming if none of its members is among them.
        """
        office, stage = self.office, self.stage
        lost = [n for n in office.view.members if n not in view.members]
        office.follow(view, lost, reborn)
        stage.blame(of_lost(office, lost))
        for node in reborn:
            # Its trainer may have outlived its daemon: its status will say. Until then nothing was
            # heard of the phases that it went through.
            office.course.forget(node)
        members = office.world.members if office.world is not None else ()
        # With partition = "strict" orders are refused while a view is being voted on.
        void = office.ctx.strict or not set(members).isdisjoint((*lost, *reborn, *missed))
        stage.follow(stage.phase.on_view(void))
        stage.go_on()
        self.stall = None  # whoever is there now has not spoken yet

    # --- time -------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Time has passed, or something else has happened on this node."""
        self.office.fitness.tick()
        self.stage.follow(self.stage.phase.tick())
        self.stage.go_on()
        self.stall = self._stalled()

    def _stalled(self) -> Stall | None:
        office, phase = self.office, self.stage.phase
        waits = isinstance(phase, Waiting) and not phase.trains_on
        planless = office.tries.planless and (waits or isinstance(phase, Freezing))
        if not planless and not (waits and office.is_short(phase.since)):
            return None
        unstored = any(
            office.reached(n) > office.stored_step for n in office.roster.trainers(*HOLDING)
        )
        elsewhere = len(office.wishes.away) >= office.least
        if elsewhere and office.fitness.served:
            return None  # they may train it: what they did since would be lost
        since = office.ctx.now if self.stall is None else self.stall.since
        if planless:
            since = office.tries.planless_since
        return Stall(since, unstored or elsewhere, phase.why)

    def deadlines(self) -> list[float]:
        """When to call :meth:`tick` though nothing was heard."""
        bulletin = self.stage.bulletin
        return [*self.stage.deadlines(), *([bulletin.soonest(self.office)] if bulletin.due else ())]

    # --- what the user sees -----------------------------------------------------------------------

    def summary(self) -> dict[str, Any]:
        """What ``status`` shows of the job."""
        office, phase = self.office, self.stage.phase
        world = office.world if self.stage.trains else None
        ranks = [] if world is None else summary.ranks(office, world)
        why = summary.reason(office, phase.why, trains=isinstance(phase, Whole))
        return {**summary.fields(office, self.stage.state(), why), "ranks": ranks}

    def summarise(self, at_once: bool = False) -> None:
        """Tell the members of the view, if something has changed."""
        bulletin, office = self.stage.bulletin, self.office
        if self.stage.waits:
            bulletin.compare(self.stage.state(), self.stage.phase.why)
        if at_once:
            bulletin.at_once()
        if not bulletin.may_tell(office):
            return
        parked = self.stage.state() == "parked" and self.end is None
        bulletin.note(office, parked, self.stage.phase.why)
        told = Summary(office.job, self.summary())
        for node in office.view.members:
            office.ctx.send(node, told)
