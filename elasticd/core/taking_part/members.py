"""A node's parts in all jobs: who is told of what happens to children, disks and memory."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import assert_never

from elasticd.checkpoints.manifest import Stored
from elasticd.core.context import Context
from elasticd.core.engines.spares import SpareReducers, Warm
from elasticd.core.taking_part.adoption import Adoption
from elasticd.core.taking_part.member import Member
from elasticd.core.words import effects as e
from elasticd.core.words.engines import EngineEvent
from elasticd.core.words.records import JobRecord, View, World
from elasticd.core.words.shards import Consistent, ManifestStore, ManifestStored, PullShards
from elasticd.core.words.stable import Found
from elasticd.core.words.worlds import Form, Noted, Notice, OfJob, OfPlace, ToMember
from elasticd.types import JobId, NodeId

OfNode = (
    e.OfChild
    | EngineEvent
    | e.ReducerReady
    | e.MemoryPressure
    | e.StateFailed
    | e.PrepareFailed
    | e.ArchiveReady
    | e.ManifestKept
    | e.ShardsFetched
    | e.StoreChanged
)
"""What happens to this node's processes, disks and memory."""


@dataclass(slots=True)
class Members:
    ctx: Context
    reducers: SpareReducers
    adoption: Adoption | None
    """Until all children of the daemon before this one have said how they are."""
    stored: dict[JobId, tuple[Stored, ...]]
    """Of each job the final checkpoints on the disk."""
    worlds: dict[JobId, World]
    """Of each job the newest world that the node was a member of."""
    reached: tuple[e.Reached, ...]
    by_job: dict[JobId, Member] = field(default_factory=dict)

    @classmethod
    def of(cls, ctx: Context, found: Found) -> Members:
        """As a daemon finds them when it starts."""
        leftovers = {left.child: left for left in found.leftovers}
        ctx.took_over(leftovers)
        return cls(
            ctx,
            SpareReducers(ctx),
            Adoption(ctx, leftovers),
            dict(found.stored),
            {world.job: world for world in found.stable.worlds},
            found.stable.reached,
        )

    def all(self) -> list[Member]:
        return list(self.by_job.values())

    def worlds_now(self) -> list[World]:
        """The newest world of each job that has a part here."""
        return [member.world for member in self.by_job.values() if member.world is not None]

    # --- what happens here ------------------------------------------------------------------------

    def put_off(self, event: e.Event) -> bool:
        """Whether the event is of a child of the daemon before us, and is dealt with or kept."""
        return self.adoption is not None and self.adoption.take(event)

    def late(self, seconds: float) -> None:
        """This node did not run for so long: what its children said meanwhile is yet to be read."""
        if self.adoption is not None:
            self.adoption.late(seconds)

    def on_event(self, event: OfNode, view: View | None) -> None:
        if isinstance(event, EngineEvent):
            for member in self._owners(event.child):
                member.part.on_engine(event)
            return
        match event:
            case e.ChildExited():
                self._exited(event)
            case e.ChildStarted() | e.ChildSaid() | e.ChildStopped():
                self._of_child(event)
            case e.ReducerReady(child):
                warm = Warm(event.host, event.proves, event.walks, event.chains)
                if self.reducers.became_ready(child, warm):
                    for member in self.all():
                        member.part.on_reducer_ready()
            case e.MemoryPressure(reason, left, mild):
                for member in self.all():
                    member.part.on_pressure(reason, left, mild=mild)
            case e.StateFailed(job, generation, reason):
                if job in self.by_job:
                    self.by_job[job].part.on_state_failed(generation, reason)
            case e.PrepareFailed(job, _, serial, reason):
                if job in self.by_job:
                    self.by_job[job].part.on_prepare_failed(serial, reason)
            case e.ArchiveReady(job, ok, reason):
                if job in self.by_job:
                    self.by_job[job].on_archive(ok, reason)
            case e.ManifestKept():
                self._manifest_kept(event, view)
            case e.ShardsFetched(report):
                self._has_stored(report.job, event.stored)
                if report.job in self.by_job:
                    self.by_job[report.job].on_pulled(event)
            case e.StoreChanged(job, stored):
                self._has_stored(job, stored)
            case _:
                assert_never(event)

    def _of_child(self, event: e.OfChild) -> None:
        if isinstance(event, e.ChildStarted):
            self.reducers.started(event.child, event.pid)
        for member in self._owners(event.child):
            member.part.on_child(event)
        if isinstance(event, e.ChildStopped) and self.reducers.has(event.child):
            self.ctx.do(e.KillChild(event.child, "it was stopped"))

    def _owners(self, child: e.ChildId) -> list[Member]:
        return [member for member in self.by_job.values() if member.part.owns(child)]

    def _exited(self, event: e.ChildExited) -> None:
        child, status, tail = event.child, event.status, event.tail
        owners = self._owners(child)
        if self.reducers.exited(child):
            self.ctx.log("warning", "spare reducer ended", status=status, tail=tail[-400:])
        for member in owners:
            member.part.on_child(event)
        if event.before:
            for member in self.all():
                member.part.on_found_dead(child, status)

    def _has_stored(self, job: JobId, stored: tuple[Stored, ...]) -> None:
        """What is on the disk now; the leader hears of it before it hears of anything else."""
        self.stored[job] = stored
        if job in self.by_job:
            self.by_job[job].reports.on_stored(stored)

    def _manifest_kept(self, kept: e.ManifestKept, view: View | None) -> None:
        self._has_stored(kept.job, kept.stored)
        if view is not None:
            reply = ManifestStored(
                kept.job, kept.lineage, kept.step, kept.stamp, kept.count, kept.ok, kept.reason,
                kept.refused, kept.lacks,
            )  # fmt: skip
            self.ctx.send(view.leader, reply)

    # --- the leader's orders ----------------------------------------------------------------------

    def on_order(self, leader: NodeId, order: ToMember, view: View, bound: bool) -> None:
        """``bound``: a newer view is promised, and no world of this one may begin."""
        if isinstance(order, OfJob):
            self._on_job(leader, order, view, bound)
            return
        match order:
            case Notice(epoch, heard):
                if epoch == view.epoch and not bound:
                    self.ctx.saw(heard.generation.counter)
                    self.ctx.hear(heard.job, heard.generation)
                    self.ctx.persist("heard", heard)
                    self.ctx.send(leader, Noted(heard.job, heard.generation))
            case ManifestStore(job, manifest):
                if self.ctx.station.holds:
                    self.ctx.do(e.CommitManifest(job, manifest))
                else:
                    self.ctx.send(leader, order.undone(self.ctx.station.idle))
            case Consistent(job, lineage, step):
                self.ctx.do(e.PruneStore(job, lineage, step))
            case _:
                assert_never(order)

    def _on_job(self, leader: NodeId, order: OfJob, view: View, bound: bool) -> None:
        """What is for our part in one job, if we have one."""
        member = self.by_job.get(order.world.job if isinstance(order, Form) else order.job)
        if member is not None:
            member.on_order(order, view.epoch, bound)
        elif self.adoption is not None and isinstance(order, OfPlace):
            # For a place that is taken up again once all children have said how they are.
            self.adoption.keep(e.Received(leader, order))
        elif isinstance(order, PullShards):
            # Nothing is taken up again yet: we are to be asked again.
            self.ctx.send(leader, order.undone("nothing of the job is here yet"))

    # --- views ------------------------------------------------------------------------------------

    def follow(self, view: View) -> None:
        """A new view is ours: tell its leader what we hold."""
        for member in self.all():
            if self.ctx.strict:
                self._leave_broken(member, view)
            member.follow(view.epoch)

    def _leave_broken(self, member: Member, view: View) -> None:
        """With ``partition = "strict"`` no world outlives a view that has lost one of its
        members."""
        world = member.world
        gone = [n for n in world.members if n not in view.members] if world is not None else []
        if gone:
            member.part.suspend(self.ctx.departures.farewell(gone[0]))

    def suspend(self, why: str) -> None:
        """Nothing may train here: every world is left at once."""
        for member in self.all():
            member.part.suspend(why)

    def on_ways(self, gather: bool) -> None:
        """Links changed."""
        for member in self.all():
            member.on_ways(gather)

    # --- after each event -------------------------------------------------------------------------

    def take_over(self, records: Mapping[JobId, JobRecord]) -> Iterable[e.Event] | None:
        """Go on with the children of the daemon before us, once all have said how they are. Returns
        what they have done since; None: nobody is taken over now."""
        adoption = self.adoption
        if adoption is None or not adoption.complete:
            return None
        self.adoption = None
        self._adopt(adoption, records)
        return adoption.later

    def _adopt(self, adoption: Adoption, records: Mapping[JobId, JobRecord]) -> None:
        adoption.give_up()
        reducers = adoption.reducers()
        trains = self.ctx.station.trains
        warm = [each.left for each in reducers if each.said.generation is None and trains]
        for left in warm:
            self.reducers.adopt(left.child, left.pid)
        kept = {left.child for left in warm}
        for job, record in records.items():
            if record.state == "running" and trains:
                kept |= self._make(record).adopt(adoption.trainers(job), reducers)
        for child in adoption.here.keys() - kept:
            self.ctx.do(e.KillChild(child, "nothing needs it any more", graceful=True))

    def _make(self, record: JobRecord) -> Member:
        member = Member(self.ctx, record, self.reducers)
        stored, world = self.stored.get(record.id, ()), self.worlds.get(record.id)
        member.reports.recall(stored, world, self.reached)
        self.by_job[record.id] = member
        return member

    def ending(self, live: Collection[JobId]) -> list[JobId]:
        """The jobs that have a part here and are not among these: they have ended."""
        return [job for job in self.by_job if job not in live]

    def attend(self, record: JobRecord, view: View | None, *, unwanted: bool, short: bool) -> None:
        """Bring this node in line with a job's record."""
        if self.adoption is not None:
            return
        member = self.by_job.get(record.id)
        if member is None:
            if record.state != "running":
                return
            member = self._make(record)
            if view is not None:
                member.follow(view.epoch)
        if member.world is not None:
            self.worlds[record.id] = member.world
        member.attend(record, unwanted, short)
        if member.ended:
            others = (each for each in self.reached if each.job != record.id)
            self.reached = (*others, *member.reports.left())
            del self.by_job[record.id]

    def mind_reducers(self) -> None:
        """A warm reducer is at hand where a world may have to be formed, and nowhere else."""
        if any(member.wants_reducer for member in self.by_job.values()):
            self.reducers.ensure()
        elif all(member.let_go for member in self.by_job.values()):
            self.reducers.drop()

    def broke_lately(self, node: NodeId, within_seconds: float) -> bool:
        """Whether a ring with that node has broken since."""
        since = self.ctx.now - within_seconds
        return any(
            member.reports.broken_at > since
            for member in self.by_job.values()
            if member.world is not None and node in member.world.members
        )

    def train_with(self, nodes: set[NodeId]) -> bool:
        """Whether any of these trains with a rank of ours."""
        return any(
            member.part.trains and member.world is not None and nodes & set(member.world.members)
            for member in self.by_job.values()
        )

    def deadlines(self) -> list[float]:
        times = self.reducers.deadlines()
        if self.adoption is not None:
            times += self.adoption.deadlines()
        for member in self.by_job.values():
            times += member.deadlines()
        return [time for time in times if time < inf]
