"""One node's control plane: a pure state machine.

    effects = node.step(now, event)        perform them in order; their results come back as events
    node.next_deadline()                   when to call step(now, Tick()) if nothing else happens
    node.check()                           what one node can see of the invariants; may raise

No clock, socket, thread, file or random number inside: ``now`` and the source of nonces are given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

from elasticd.checkpoints.manifest import Stored
from elasticd.core.context import Context, Timing
from elasticd.core.jobs.nodes import NodeTable
from elasticd.core.jobs.status import job_status
from elasticd.core.jobs.table import JobTable
from elasticd.core.leading.drivers import Drivers
from elasticd.core.membership.liveness import Liveness
from elasticd.core.membership.views import Membership
from elasticd.core.membership.votes import Votes
from elasticd.core.taking_part.adoption import Adoption
from elasticd.core.taking_part.member import Member
from elasticd.core.taking_part.spares import SpareReducers
from elasticd.core.words import effects as e
from elasticd.core.words.messages import Message
from elasticd.core.words.records import Heard, JobRecord, NodeRecord, View, World
from elasticd.core.words.shards import (
    Consistent,
    Interval,
    ManifestStore,
    ManifestStored,
    PullShards,
)
from elasticd.core.words.tables import Departing, Jobs, JobsKept, Nodes, NodesKept, Summary
from elasticd.core.words.views import (
    Heartbeat,
    Leaving,
    Missing,
    Obituary,
    ViewAck,
    ViewForm,
    ViewNack,
    ViewPropose,
)
from elasticd.core.words.worlds import (
    Continue,
    Discharge,
    Form,
    Formed,
    Freeze,
    Go,
    Halt,
    Hung,
    Lend,
    Noted,
    Notice,
    Prepare,
    Release,
    Report,
    ToLeader,
    Verdict,
)
from elasticd.errors import ElasticdError
from elasticd.recovery.regroup import check_shares
from elasticd.settings.job import JobSpec
from elasticd.types import JobId, NodeId, Tag

_EVENTS_PER_INSTANT = 10_000
"""More messages than this from one event means that two parts talk in circles."""


class InvariantError(ElasticdError):
    """The control plane would do what it must never do."""


@dataclass(frozen=True, slots=True)
class Stable:
    """What a node remembers across restarts, from its journal."""

    counter: int = 0
    promised: Tag | None = None
    records: tuple[JobRecord, ...] = ()
    born: Tag | None = None
    """The first view that was ever promised."""
    formed: View | None = None
    """The newest primary view (``partition = "strict"``) that is known to have formed."""
    attempts: tuple[View, ...] = ()
    """Later ones that were attempted."""
    worlds: tuple[World, ...] = ()
    """Of each job the newest world that the node was a member of."""
    heard: tuple[Heard, ...] = ()
    """Of worlds, in them or not."""
    nodes: tuple[NodeRecord, ...] = ()
    reached: tuple[e.Reached, ...] = ()
    """Of each job the newest step that was committed here, as far as the disk has it."""


@dataclass(slots=True)
class Node:
    me: NodeId
    boot: str
    nonce: Callable[[], str]
    expected_peers: int
    timing: Timing = field(default_factory=Timing)
    stable: Stable = field(default_factory=Stable)
    stored: dict[JobId, tuple[Stored, ...]] = field(default_factory=dict)
    wall: Callable[[], float] = lambda: 0.0
    domain: str = ""
    leftovers: tuple[e.Leftover, ...] = ()
    """Children that outlived the daemon before this one. Their numbers are taken."""
    strict: bool = False
    """``partition = "strict"``: at most one view trains."""
    hosts: tuple[str, ...] = ()
    """This node's addresses, without ports, best first."""
    ctx: Context = field(init=False)
    views: Membership = field(init=False)
    liveness: Liveness = field(init=False)
    reducers: SpareReducers = field(init=False)
    jobs: JobTable = field(init=False)
    nodes: NodeTable = field(init=False)
    drivers: Drivers = field(init=False)
    members: dict[JobId, Member] = field(default_factory=dict)
    summaries: dict[JobId, dict[str, Any]] = field(default_factory=dict)
    worlds: dict[JobId, World] = field(default_factory=dict)
    """Of each job the newest world that the node was a member of."""
    followed: Tag | None = None
    due: float = inf
    """When it asked to be woken at the latest."""
    adoption: Adoption | None = None

    def __post_init__(self) -> None:
        self.ctx = Context(
            self.me, self.boot, self.nonce, self.timing, counter=self.stable.counter,
            domain=self.domain, strict=self.strict, hosts=self.hosts,
        )  # fmt: skip
        self.views = Membership(self.ctx, self._votes(), self.expected_peers)
        self.liveness = self.views.liveness
        if self.stable.promised is not None:
            self.views.promised = self.stable.promised
        for heard in self.stable.heard:
            self.ctx.hear(heard.job, heard.generation)
        self.reducers = SpareReducers(self.ctx)
        self.jobs = JobTable(self.ctx, self._near, self._view_members)
        self.jobs.records = {record.id: record for record in self.stable.records}
        self.worlds = {world.job: world for world in self.stable.worlds}
        self.nodes = NodeTable(
            self.ctx, self.liveness.living, self._view_members, self._near_members
        )
        self.nodes.records = {record.node: record for record in self.stable.nodes}
        self.drivers = Drivers(self.ctx, self.jobs, self.nodes.unwanted)
        self.ctx.children = max((left.child for left in self.leftovers), default=0)
        self.adoption = Adoption(self.ctx, {left.child: left for left in self.leftovers})

    def _votes(self) -> Votes:
        kept, configured = self.stable, self.expected_peers + 1
        return Votes.of(self.ctx, configured, kept.born, kept.formed, kept.attempts)

    def _view_members(self) -> tuple[NodeId, ...]:
        return self.views.view.members if self.views.view is not None else ()

    def _near(self) -> Sequence[NodeId]:
        """Whom to tell news that they pass on."""
        return self.liveness.close(self.liveness.living())

    def _near_members(self) -> Sequence[NodeId]:
        return self.liveness.close(self._view_members())

    @property
    def records(self) -> dict[JobId, JobRecord]:
        """Every job that the node knows of."""
        return self.jobs.records

    def queue(self) -> list[JobRecord]:
        """All jobs in the order in which they were or will be run."""
        return self.jobs.queue()

    # --- the contract -----------------------------------------------------------------------------

    def step(self, now: float, event: e.Event) -> list[e.Effect]:
        """Take in one event and return what is to be done, in order."""
        ctx = self.ctx
        ctx.now, ctx.wall, ctx.effects = now, self.wall(), []
        if self.views.wake(self.liveness.detector.running(now, self.due)):
            self._park()
        self.due = inf
        self._take(event)
        for _ in range(_EVENTS_PER_INSTANT):
            if ctx.inbox:
                self._receive(self.me, ctx.inbox.popleft())
                continue
            self._settle()
            if not ctx.inbox:
                break
        else:
            raise InvariantError("the control plane does not come to rest")
        self.check()
        return ctx.effects

    def next_deadline(self) -> float:
        times = [*self.views.deadlines(), *self.reducers.deadlines()]
        if self.adoption is not None:
            times += self.adoption.deadlines()
        for member in self.members.values():
            times += member.deadlines()
        for driver in self.drivers.by_job.values():
            times += driver.deadlines()
        soonest = min((time for time in times if time > self.ctx.now), default=self.ctx.now + 1.0)
        self.due = soonest
        return soonest

    def check(self) -> None:
        """Invariants 1 and 2, as far as one node can see them."""
        for driver in self.drivers.by_job.values():
            world = driver.world
            if world is not None and world is not self._checked:
                self._checked = world
                grains = driver.relief.cut(world.relief).grains
                check_shares(grains, world.shares_now)
                check_shares(grains, world.shares)
                if len(set(world.members)) != len(world.members):
                    raise InvariantError(f"a node is twice in the world {world.generation}")
        for member in self.members.values():
            world = member.world
            if world is not None and world.generation.counter > self.ctx.counter:
                raise InvariantError(f"generation {world.generation} is above the counter")

    # --- events -----------------------------------------------------------------------------------

    def _take(self, event: e.Event) -> None:
        if self.adoption is not None and self.adoption.take(event):
            return
        match event:
            case e.Tick():
                pass
            case e.PeerUp(node, boot, address, session):
                self.liveness.peer_up(node, boot, address, session)
                self.jobs.share([node])
                self.nodes.share([node])
            case e.PeerDown(node, boot, reason):
                self.views.peer_down(node, boot, reason)
            case e.Leave(reason):
                self.views.leave(reason)
            case e.Stay():
                self.views.stay()
            case e.Paths(node, paths):
                self.ctx.paths[node] = paths
                for member in self.members.values():
                    member.on_ways(gather=self.liveness.circle.sparse)
            case e.Received(node, message):
                self.liveness.heard(node)
                self._receive(node, message)
            case e.Submit(request, record):
                self.jobs.submit(request, record)
            case e.Cancel(request, job):
                self.jobs.cancel(request, job)
            case e.Pause(request, job, paused):
                self.jobs.pause(request, job, paused)
            case e.Drain(request, node, draining):
                self.nodes.drain(request, node, draining)
            case e.Depart():
                self.nodes.departing.add(self.me)
                for node in self._view_members():
                    if node != self.me:
                        self.ctx.send(node, Departing())
            case e.ReducerReady(child, host):
                if self.reducers.became_ready(child, host):
                    for member in self.members.values():
                        member.on_reducer_ready()
            case e.ChildStarted(child, pid):
                self.reducers.pids[child] = pid
                for member in self._owners(child):
                    member.on_started(child, pid)
            case e.ReducerListens(child):
                for member in self._owners(child):
                    member.on_reducer_listens(child)
            case e.ChildSaid(child, message):
                for member in self._owners(child):
                    member.on_said(child, message)
            case e.ChildExited():
                self._exited(event)
            case e.ChildStopped(child, seconds):
                for member in self._owners(child):
                    member.on_stopped(child, seconds)
                if self.reducers.has(child):
                    self.ctx.do(e.KillChild(child, "it was stopped"))
            case e.MemoryPressure(reason, left):
                for member in self.members.values():
                    member.on_pressure(reason, left)
            case e.StateFailed(job, generation, reason):
                if job in self.members:
                    self.members[job].on_state_failed(generation, reason)
            case e.PrepareFailed(job, _, serial, reason):
                if job in self.members:
                    self.members[job].on_prepare_failed(serial, reason)
            case e.ArchiveReady(job, ok, reason):
                if job in self.members:
                    self.members[job].on_archive(ok, reason)
            case e.ManifestKept():
                self._manifest_kept(event)
            case e.ShardsFetched():
                self._has_stored(event.report.job, event.stored)
                if event.report.job in self.members:
                    self.members[event.report.job].on_pulled(event)
            case e.StoreChanged(job, stored):
                self._has_stored(job, stored)

    def _owners(self, child: int) -> list[Member]:
        return [member for member in self.members.values() if member.owns(child)]

    def _exited(self, event: e.ChildExited) -> None:
        child, status, tail = event.child, event.status, event.tail
        owners = self._owners(child)
        self.reducers.pids.pop(child, None)
        if self.reducers.exited(child):
            self.ctx.log("warning", "spare reducer ended", status=status, tail=tail[-400:])
        for member in owners:
            member.on_exit(child, status, tail, event.memory)
        if event.before:
            for member in self.members.values():
                member.on_found_dead(child, status)

    def _has_stored(self, job: JobId, stored: tuple[Stored, ...]) -> None:
        """What is on the disk now; the leader hears of it before it hears of anything else."""
        self.stored[job] = stored
        if job in self.members:
            self.members[job].on_stored(stored)

    def _manifest_kept(self, kept: e.ManifestKept) -> None:
        self._has_stored(kept.job, kept.stored)
        if self.views.view is not None:
            reply = ManifestStored(
                kept.job,
                kept.lineage,
                kept.step,
                kept.stamp,
                kept.count,
                kept.ok,
                kept.reason,
                kept.refused,
            )
            self.ctx.send(self.views.view.leader, reply)

    def _witness(self) -> None:
        """A ring that broke just now speaks against every suspect that is in the same world."""
        window = self.ctx.timing.return_seconds
        for node in self.liveness.suspects():
            for member in self.members.values():
                world = member.world
                if world is None or node not in world.members:
                    continue
                if self.ctx.now - member.broken_at < window:
                    self._confirm_dead(node, "its ring broke too")
                    break

    def _confirm_dead(self, node: NodeId, why: str) -> None:
        if self.liveness.confirm_dead(node, why):
            for peer in self.liveness.living():
                if peer != self.me:
                    self.ctx.send(peer, Obituary(node, why))

    # --- messages ---------------------------------------------------------------------------------

    def _receive(self, node: NodeId, message: Message) -> None:
        views = self.views
        match message:
            case Heartbeat():
                views.on_heartbeat(node, message)
            case Missing():
                self.liveness.on_missing(node, message)
            case Obituary(dead, why):
                self.liveness.confirm_dead(dead, f"{node} says: {why}")
            case Leaving():
                views.on_leaving(node, message)
            case ViewPropose(view):
                views.on_propose(node, view)
            case ViewAck():
                views.on_ack(node, message)
            case ViewNack():
                views.on_nack(node, message)
            case ViewForm(view):
                if views.on_form(node, view):
                    self._follow()
            case Jobs(records):
                self.jobs.on_jobs(node, records)
            case JobsKept(jobs):
                self.jobs.on_kept(node, jobs)
            case Nodes(told):
                self.nodes.on_nodes(node, told)
            case NodesKept(names):
                self.nodes.on_kept(node, names)
            case Departing():
                self.nodes.departing.add(node)
            case Summary(job, fields):
                self.summaries[job] = fields
            case _:
                if isinstance(message, ToLeader):
                    self.drivers.receive(node, message)
                else:
                    self._order(node, message)

    def _order(self, node: NodeId, message: Any) -> None:
        """The leader's orders; from anybody else they are stale."""
        view = self.views.view
        if view is None or node != view.leader:
            return
        if isinstance(message, Notice):
            self._note(node, message)
            return
        if isinstance(message, ManifestStore):
            self.ctx.do(e.CommitManifest(message.job, message.manifest))
            return
        if isinstance(message, Consistent):
            self.ctx.do(e.PruneStore(message.job, message.lineage, message.step))
            return
        job = message.world.job if isinstance(message, Form) else message.job
        member = self.members.get(job)
        if member is None:
            if isinstance(message, PullShards):
                # Children of the daemon before us are still adopted: we are to be asked again.
                self.ctx.send(node, message.undone("nothing of the job is here yet"))
            return
        match message:
            case Report():
                member.follow(view.epoch)
            case Freeze(epoch):
                if epoch == view.epoch:
                    member.on_freeze(message)
            case Form(world):
                if world.epoch == view.epoch and not self.views.bound:
                    member.on_form(message)
            case Go(_, generation):
                member.on_go(generation)
            case Continue(_, generation):
                member.on_continue(generation)
            case Formed(_, generation):
                member.on_formed(generation)
            case Verdict(_, generation, exact, reason):
                member.on_verdict(generation, exact, reason)
            case Hung(_, generation, why, seconds):
                member.on_hung(generation, why, seconds)
            case Lend():
                member.on_lend(message)
            case Prepare():
                member.on_prepare(message)
            case Discharge():
                member.on_discharge()
            case Halt(_, generation, step):
                member.on_halt(generation, step)
            case Release():
                member.on_release()
            case PullShards():
                member.on_pull(message)
            case Interval(_, generation, every, step):
                member.on_interval(generation, every, step)

    def _note(self, leader: NodeId, notice: Notice) -> None:
        if notice.epoch == self.views.epoch and not self.views.bound:
            heard = notice.heard
            self.ctx.saw(heard.generation.counter)
            self.ctx.hear(heard.job, heard.generation)
            self.ctx.persist("heard", heard)
            self.ctx.send(leader, Noted(heard.job, heard.generation))

    # --- views ------------------------------------------------------------------------------------

    def _follow(self) -> None:
        """A new view is ours: tell its leader what we hold; lead, if it is us."""
        view = self.views.view
        assert view is not None
        before = self.followed
        self.followed = view.epoch
        kept_lead = before is not None and before.leader == self.me == view.leader
        reborn = self.liveness.reborn
        self.ctx.log("info", "view", epoch=str(view.epoch), members=list(view.members))
        if self.views.leading:
            self._announce(before, view)
            self._tell_of_parking(view)
            for driver in self.drivers.by_job.values() if kept_lead else ():
                driver.on_view(view, reborn, self.liveness.missed)
        if not kept_lead:
            self.drivers.by_job.clear()
        self.jobs.share([n for n in self._near_members() if n != self.me])
        self._park()
        self.nodes.share([n for n in self._near_members() if n != self.me])
        self.nodes.departing &= {self.me, *view.members} - set(reborn)
        self._schedule()
        for member in self.members.values():
            self._leave_broken(member, view)
            member.follow(view.epoch)

    def _leave_broken(self, member: Member, view: View) -> None:
        """With ``partition = "strict"`` no world outlives a view that has lost one of its
        members."""
        world = member.world
        gone = [n for n in world.members if n not in view.members] if world is not None else []
        if self.strict and gone:
            member.suspend(self.ctx.farewell(gone[0]))

    def _park(self) -> None:
        """Where nothing may train nobody drives a job, and every world is left at once."""
        if self.views.view is None:
            self.followed = None
            self.drivers.by_job.clear()
        if parked := self.views.parked:
            self.drivers.by_job.clear()
            for member in self.members.values() if not self.views.starting else ():
                member.suspend(parked)

    def _tell_of_parking(self, view: View) -> None:
        for record in self.queue():
            if record.state == "running" and not view.primary:
                self.ctx.emit("job_parked", view.why, record.id, epoch=view.epoch.counter)

    def _announce(self, before: Tag | None, view: View) -> None:
        old = set(self._last_members)
        for node in sorted(set(view.members) - old):
            if node != self.me or not old:
                self.ctx.emit(
                    "node_joined", f"{node} joined the view", culprit=node, epoch=view.epoch.counter
                )
        for node in sorted(old - set(view.members)):
            self.ctx.emit(
                "node_lost", self.ctx.farewell(node), culprit=node, epoch=view.epoch.counter
            )

    _last_members: tuple[NodeId, ...] = ()
    _checked: World | None = None

    # --- after each event -------------------------------------------------------------------------

    def _settle(self) -> None:
        """Bring everything in line with what the event changed."""
        if self.adoption is not None and self.adoption.complete:
            self._adopt(self.adoption)
        self._witness()
        self.views.tick()
        self._park()
        if self.views.view is not None:
            self._last_members = self.views.view.members
        self.drivers.keep_records()
        self._schedule()
        for job, record in list(self.records.items()):
            self._attend(job, record)
        self.drivers.tick()
        if any(member.wants_reducer for member in self.members.values()):
            self.reducers.ensure()
        elif all(member.let_go for member in self.members.values()):
            self.reducers.drop()
        self.jobs.answer()
        self.nodes.answer()

    def _schedule(self) -> None:
        if self.views.view is not None and self.views.leading and not self.views.parked:
            self.drivers.schedule(self.views.view)

    def _adopt(self, adoption: Adoption) -> None:
        """All children of the daemon before us have said how they are: go on with them."""
        self.adoption = None
        adoption.give_up()
        reducers = adoption.reducers()
        for reducer in reducers:
            if reducer.said.generation is None:
                self.reducers.adopt(reducer.left.child, reducer.left.pid)
        kept = {each.left.child for each in reducers if each.said.generation is None}
        for job, record in self.records.items():
            if record.state == "running":
                kept |= self._make_member(record).adopt(adoption.trainers(job), reducers)
        for child in adoption.here.keys() - kept:
            self.ctx.do(e.KillChild(child, "nothing needs it any more", graceful=True))
        for event in adoption.later:
            self._take(event)
        if self.views.view is not None:
            for member in self.members.values():
                self._leave_broken(member, self.views.view)
                member.follow(self.views.view.epoch)

    def _make_member(self, record: JobRecord) -> Member:
        member = Member(self.ctx, record, JobSpec.from_dict(record.spec), self.reducers)
        member.stored = self.stored.get(record.id, ())
        member.world = self.worlds.get(record.id)
        member.recall(self.stable.reached)
        self.members[record.id] = member
        return member

    def _attend(self, job: JobId, record: JobRecord) -> None:
        if self.adoption is not None:
            return
        member = self.members.get(job)
        if member is None:
            if record.state != "running":
                return
            member = self._make_member(record)
            if self.views.view is not None:
                member.follow(self.views.view.epoch)
        if member.world is not None:
            self.worlds[job] = member.world
        unwanted = self.me in self.nodes.unwanted()
        if member.unwanted != unwanted:
            member.unwanted = unwanted
            member.reconcile()
        if member.record != record or member.archive == "wanted":
            member.record = record
            member.reconcile()
        member.tick()
        if member.ended:
            del self.members[job]

    # --- what the user sees -----------------------------------------------------------------------

    def state_of(self, node: NodeId) -> str:
        """``alive``, ``suspect``, ``dead`` or ``draining``."""
        state = self.liveness.state_of(node)
        return "draining" if state == "alive" and self.nodes.draining(node) else state

    def may_stop(self) -> bool:
        """Whether nobody who stays trains with a rank of ours."""
        stays = set(self._view_members()) - self.nodes.unwanted()
        return not any(
            member.active and member.world is not None and stays & set(member.world.members)
            for member in self.members.values()
        )

    def may_end(self) -> bool:
        """Whether the others can do without another word of ours, once we have left."""
        return not self.views.votes.owed

    def job_status(self, job: JobId) -> dict[str, Any]:
        """One entry of ``status --json``'s jobs."""
        record = self.jobs.records[job]
        runnable = [each.id for each in self.jobs.runnable()]
        position = runnable.index(job) + 1 if job in runnable else None
        return job_status(record, self.summaries.get(job, {}), position, self.views.parked)
