"""What the leader of one job keeps while it is in office, whatever phase the job is in.

Rebuilt from what the members report whenever a leader is elected; nothing here has to survive.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from elasticd.checkpoints.manifest import Manifest
from elasticd.core.context import Context
from elasticd.core.leading.account import Account
from elasticd.core.leading.balance import Balance
from elasticd.core.leading.calls import ResultRelay
from elasticd.core.leading.checkpointing import Checkpoints
from elasticd.core.leading.course import Course
from elasticd.core.leading.exactness import Computed, Exactness
from elasticd.core.leading.fitness import Fitness
from elasticd.core.leading.growth import Growth
from elasticd.core.leading.halting import Halting
from elasticd.core.leading.histories import Histories
from elasticd.core.leading.oncpu import OnCpu
from elasticd.core.leading.patience import Patience
from elasticd.core.leading.relief import Relief
from elasticd.core.leading.roster import HOLDING, LEFT, Roster, is_anew
from elasticd.core.leading.stopping import came_with
from elasticd.core.leading.tries import Tries
from elasticd.core.leading.trust import Trust
from elasticd.core.leading.wishes import Wishes
from elasticd.core.words.records import JobRecord, View, World, relief_of
from elasticd.core.words.worlds import MemberStatus, Progress
from elasticd.recovery import divergence
from elasticd.recovery.speed import MemberPace
from elasticd.settings.job import JobSpec
from elasticd.types import NO_TAG, JobId, NodeId


@dataclass(slots=True)
class Office:
    """Of one job, while its driver lives; each part says for itself what it is for."""

    ctx: Context
    spec: JobSpec
    wishes: Wishes
    roster: Roster
    course: Course
    checkpoints: Checkpoints
    account: Account
    trust: Trust
    growth: Growth
    halting: Halting
    balance: Balance
    relief: Relief
    exactness: Exactness
    histories: Histories
    tries: Tries

    @classmethod
    def of(cls, ctx: Context, record: JobRecord, view: View) -> Office:
        """The leader of ``view`` begins with a job."""
        spec, job = JobSpec.from_dict(record.spec), record.id
        account, trust = Account(ctx, job, began_at=ctx.now), Trust(ctx, job)
        seconds = spec.recovery.user_code_seconds
        costly = spec.plain is not None
        fitness = Fitness(ctx, job, record.unfit, costly, frozenset(record.served))
        return cls(
            ctx,
            spec,
            Wishes(ctx, record, fitness),
            Roster(view),
            Course(Patience(seconds), ResultRelay(ctx, job, seconds)),
            Checkpoints(ctx, job, spec, view),
            account,
            trust,
            Growth(ctx, job),
            Halting(ctx, job),
            Balance(ctx, job, spec, account, trust),
            Relief(ctx, job, spec.batch, record.relief, record.relief_turn),
            _exactness(ctx, record, spec),
            Histories(ctx, job, record.left, record.ran),
            Tries(ctx),
        )

    @property
    def job(self) -> JobId:
        """Whose leader we are."""
        return self.wishes.record.id

    @property
    def view(self) -> View:
        """The view that we lead."""
        return self.roster.view

    @property
    def statuses(self) -> dict[NodeId, MemberStatus]:
        """What the members of the view said last."""
        return self.roster.statuses

    @property
    def world(self) -> World | None:
        """The last world that we know of."""
        return self.course.world

    @property
    def newest(self) -> Manifest | None:
        """The newest consistent checkpoint."""
        return self.checkpoints.newest

    @property
    def stored_step(self) -> int:
        """That of the newest consistent checkpoint."""
        return self.newest.step if self.newest is not None else 0

    @property
    def last_step(self) -> int:
        """With which the job ends, as far as is known."""
        newest, steps = self.newest, self.spec.train.steps
        if newest is not None and newest.last:
            return newest.step  # who leads when all have left may know of no world
        return steps if self.world is None else self.world.ends_at(steps)

    @property
    def stored_last(self) -> bool:
        """Whether the last step's checkpoint is consistent."""
        return self.newest is not None and self.newest.step == self.last_step

    @property
    def all_committed(self) -> bool:
        """Whether no step is left to do."""
        return self.course.committed >= self.last_step

    @property
    def least(self) -> int:
        """The fewest members of a world. Any may end when all is done: others have ended before."""
        return 1 if self.stored_last else self.spec.world.min

    @property
    def restores(self) -> bool:
        """Whether all go back where states differ. Where updates differ between members that
        compute rightly, the majority's state is as good as any that all had."""
        return self.spec.recovery.on_divergence == "restore" and not self.exactness.apart

    def parted_by_chips(self, what: Computed, digests: Mapping[NodeId, str]) -> bool:
        """Whether members have come to different ``digests`` because their chips compute other
        bits: then nobody is to blame, and the job is exact no more."""
        chips = self.roster.chips(digests)
        pair = divergence.by_chip(digests, chips)
        if pair is not None:
            one, other = ((node, chips[node]) for node in pair)
            self.exactness.part(what, (one, other))
        return pair is not None

    def are_apart(self, digests: Mapping[NodeId, str], step: int) -> bool:
        """Whether states of ``step`` have these ``digests`` though nobody computes wrongly. Who was
        given its state may have bits of another's chip."""
        worlds = self.roster.worlds(self.world)
        made = {
            node: digest
            for node, digest in digests.items()
            if not any(came_with(world, node, step) for world in worlds)
        }
        return self.exactness.apart or any(
            self.parted_by_chips("updates", told) for told in (digests, made)
        )

    def may_be_apart(self, digests: Mapping[NodeId, str], step: int) -> bool:
        """As far as these few tell, of members whose chips may not all be the same. Some may have
        told of a world before."""
        members = self.world.members if self.world is not None else ()
        differ = self.roster.may_differ_in_chips({*members, *digests})
        return self.are_apart(digests, step) or differ

    def silent(self, since: float) -> list[NodeId]:
        """Members that have not said yet how they are, while it is worth waiting for them."""
        waits = self.ctx.now - max(since, self.tries.met_at) < self.ctx.timing.holding_seconds
        return self.roster.silent() if waits else []

    def is_short(self, since: float) -> bool:
        """Whether too few members are there, or too few trainers after a while of waiting."""
        able = self.roster.trainers("active", "finished", "ready", "starting")
        waited = self.ctx.now - since > self.ctx.timing.holding_seconds
        there = {*self.view.members} - self.wishes.standing.idle
        return len(there) < self.least or (len(able) < self.least and waited)

    def reduce_seconds(self) -> float:
        """For so long nothing may move in a world that trains."""
        return self.course.patience.reduce_limit(self.ctx.timing.hang_seconds)

    def somebody_leaves(self) -> bool:
        """Whether a member of the world has left its loop, or still can."""
        world = self.world
        found = self.roster.trainers(*HOLDING, *LEFT)
        return any(world is None or node in world.members for node in found)

    def waited_for_restore(self) -> bool:
        """Whether nodes that may hold something newer had their time to come back."""
        return self.ctx.now - self.account.since >= self.ctx.timing.restore_seconds

    @property
    def keepers(self) -> frozenset[NodeId]:
        """Nodes that are away, and may have a checkpoint: none of a job that never made a step."""
        record, wishes = self.wishes.record, self.wishes
        begun = record.began != NO_TAG or record.rested or record.step or self.course.committed
        if not begun:
            return frozenset()
        storing = {*record.offered, *record.served} & wishes.standing.stores
        return (wishes.away | storing) - {*self.view.members}

    @property
    def fitness(self) -> Fitness:
        """Which nodes the job goes on without."""
        return self.wishes.fitness

    # --- what happens in any phase ----------------------------------------------------------------

    def hear(self, node: NodeId, status: MemberStatus) -> None:
        """How a member is; what it began before it was tried again says nothing any more."""
        if status.tried < self.fitness.turn_of(node) and node not in self.fitness.left_out:
            status = status.of_now()
        if status.world is not None:
            self.exactness.heard(status.world, self.world)
            self.checkpoints.recall(status.world.spoilt)
            self.trust.recall(status.world, self.course.committed)
        if status.trainer is not None and status.trainer.phase in LEFT:
            self.course.leave(node)
            if status.trainer.phase == "done":
                self.course.ends.end(node)
        self.roster.hear(node, status)
        self.came_back(node)

    def came_back(self, node: NodeId) -> None:
        """If it says that it was started again, its loss was no cut."""
        status = self.statuses.get(node)
        if status is not None and status.world is not None and is_anew(status):
            self.trust.ladder.came_back(node, status.world.generation)

    def recall(self, record: JobRecord) -> None:
        """The record may tell more: other nodes know of histories, and operators of nodes that are
        to be tried again, and of memory that there is again."""
        self.histories.recall(record.left, record.ran)
        self.exactness.recall(record, self.world)
        self.relief.recall(*relief_of(record))
        self.fitness.recall(record)
        for node, status in list(self.statuses.items()):
            self.hear(node, status)

    def follow(self, view: View, lost: list[NodeId], reborn: tuple[NodeId, ...]) -> None:
        """A new view: what was asked and told in the old one is void."""
        self.roster.follow(view)
        self.checkpoints.on_view(view, (*lost, *reborn))
        self.course.follow()
        self.exactness.judge_anew()
        self.tries.reset()
        self.growth.follow()
        self.halting.reset()
        self.wishes.follow()

    def saw(self, node: NodeId, progress: Progress) -> bool:
        """A member's progress in the last world; whether another step is committed."""
        pace = MemberPace(progress.grain_seconds, progress.update_seconds, progress.reduce_seconds)
        self.balance.speeds.saw(node, pace)
        further = self.course.saw(node, progress, self.ctx.now)
        if further:
            self.trust.ladder.passed(self.course.committed)
        return further

    def reached(self, node: NodeId) -> int:
        """The step that a member has come to, as far as it has told."""
        told = self.course.progress.get(node)
        return max(self.statuses[node].committed, told.step if told is not None else 0)

    def advance(self) -> bool:
        """Go on with the checkpoints; whether another one is the newest now."""
        self.checkpoints.place(self.wishes.standing)
        self.checkpoints.advance()
        return self.checkpoints.news()

    # --- worlds -----------------------------------------------------------------------------------

    def take(self, world: World, *copies: World) -> None:
        """An earlier leader has made this world. Of further ``copies`` of it that are known one may
        tell more: a node of an older release keeps only what that knows."""
        self.course.take(world)
        self.checkpoints.enter(world)
        for copy in (world, *copies):
            self.account.adopt(copy)
            self.trust.adopt(copy)
        self.exactness.adopt(world)
        self.relief.adopt(world)
        self.growth.enter(world)
        self.fitness.serve(world.members)

    def begin(self, world: World) -> None:
        """This world is to form."""
        self.course.begin(world)
        self.exactness.on_cpu.enter(world)
        self.exactness.judge_anew()
        self.balance.speeds.restart()
        self.growth.enter(world)
        self.checkpoints.enter(world)

    def recovered(self) -> None:
        """Close the recovery once a step is committed in the last world, or none is left to do."""
        world = self.world
        if world is not None and (self.course.committed > world.step or self.all_committed):
            self.account.close(world, self.course.committed, self.stored_step)
            self.growth.entered(world)


def _exactness(ctx: Context, record: JobRecord, spec: JobSpec) -> Exactness:
    fast, required = spec.world.reduction != "exact", spec.world.require_exact
    on_cpu = OnCpu.of(record.on_cpu)
    return Exactness(
        ctx,
        record.id,
        fast,
        required,
        record.inexact,
        on_cpu=on_cpu,
        origin=record.origin,
        began=record.began,
    )
