"""One node's control plane: a pure state machine.

    effects = node.step(now, event)        perform them in order; their results come back as events
    node.next_deadline()                   when to call step(now, Tick()) if nothing else happens
    node.check()                           what one node can see of the invariants; may raise

No clock, socket, thread, file or random number inside: ``now`` and the source of nonces are given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from elasticd.checkpoints.manifest import Stored
from elasticd.core import effects as e
from elasticd.core import messages as m
from elasticd.core.checkpointing import Checkpoints
from elasticd.core.context import Context, Timing
from elasticd.core.leader import Driver
from elasticd.core.member import Member, SpareReducers
from elasticd.core.patience import Patience
from elasticd.core.views import Membership
from elasticd.errors import ElasticdError
from elasticd.job import JobSpec
from elasticd.recovery.regroup import check_shares
from elasticd.recovery.relief import cut
from elasticd.types import JobId, NodeId, Tag

_EVENTS_PER_INSTANT = 10_000
"""More messages than this from one event means that two parts talk in circles."""
_ACCOUNT = (
    "generation", "loss", "recoveries", "lost_steps", "exact", "bytes_per_step", "digest",
    "digest_step",
)  # fmt: skip


class InvariantError(ElasticdError):
    """The control plane would do what it must never do."""


@dataclass(frozen=True, slots=True)
class Stable:
    """What a node remembers across restarts, from its journal."""

    counter: int = 0
    promised: Tag | None = None
    records: tuple[m.JobRecord, ...] = ()
    worlds: tuple[m.World, ...] = ()
    """Of each job the newest world that the node was a member of."""


@dataclass(slots=True)
class Waiting:
    """A client's request that is answered when every member has the record on disk."""

    request: int
    job: JobId
    nodes: set[NodeId]
    body: dict[str, Any]


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
    ctx: Context = field(init=False)
    views: Membership = field(init=False)
    reducers: SpareReducers = field(init=False)
    records: dict[JobId, m.JobRecord] = field(default_factory=dict)
    members: dict[JobId, Member] = field(default_factory=dict)
    drivers: dict[JobId, Driver] = field(default_factory=dict)
    summaries: dict[JobId, dict[str, Any]] = field(default_factory=dict)
    waiting: list[Waiting] = field(default_factory=list)
    followed: Tag | None = None

    def __post_init__(self) -> None:
        self.ctx = Context(
            self.me, self.boot, self.nonce, self.timing, counter=self.stable.counter,
            domain=self.domain,
        )  # fmt: skip
        self.views = Membership(self.ctx, self.expected_peers)
        if self.stable.promised is not None:
            self.views.promised = self.stable.promised
        self.reducers = SpareReducers(self.ctx)
        self.records = {record.id: record for record in self.stable.records}

    # --- the contract -----------------------------------------------------------------------------

    def step(self, now: float, event: e.Event) -> list[e.Effect]:
        """Take in one event and return what is to be done, in order."""
        ctx = self.ctx
        ctx.now, ctx.wall, ctx.effects = now, self.wall(), []
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
        for member in self.members.values():
            times += member.deadlines()
        for driver in self.drivers.values():
            times += driver.deadlines()
        return min((time for time in times if time > self.ctx.now), default=self.ctx.now + 1.0)

    def check(self) -> None:
        """Invariants 1 and 2, as far as one node can see them."""
        for driver in self.drivers.values():
            world = driver.world
            if world is not None:
                grains = driver.cut(world.relief).grains
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
        match event:
            case e.Tick():
                pass
            case e.PeerUp(node, boot, address):
                self.views.peer_up(node, boot, address)
                self._share_jobs([node])
            case e.PeerDown(node, boot, reason):
                self.views.peer_down(node, boot, reason)
            case e.Received(node, message):
                self.views.heard(node)
                self._receive(node, message)
            case e.Submit(request, record):
                self._submit(request, record)
            case e.Cancel(request, job):
                self._cancel(request, job)
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
            case e.MemoryPressure(reason):
                for member in self.members.values():
                    member.on_pressure(reason)
            case e.StateFailed(job, generation, reason):
                if job in self.members:
                    self.members[job].on_state_failed(generation, reason)
            case e.ArchiveReady(job, ok, reason):
                if job in self.members:
                    self.members[job].on_archive(ok, reason)
            case e.ManifestKept():
                self._manifest_kept(event)
            case e.ShardsFetched(report, ok, reason):
                if report.job in self.members:
                    self.members[report.job].on_pulled(report, ok, reason)

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

    def _manifest_kept(self, kept: e.ManifestKept) -> None:
        self.stored[kept.job] = kept.stored
        if kept.job in self.members:
            self.members[kept.job].on_manifest(kept.stored)
        if self.views.view is not None:
            reply = m.ManifestStored(kept.job, kept.step, kept.stamp, kept.ok, kept.reason)
            self.ctx.send(self.views.view.leader, reply)

    def _witness(self) -> None:
        """A ring that broke just now speaks against every suspect that is in the same world."""
        window = self.ctx.timing.return_seconds
        for node in self.views.suspects():
            for member in self.members.values():
                world = member.world
                if world is None or node not in world.members:
                    continue
                if self.ctx.now - member.broken_at < window:
                    self._confirm_dead(node, "its ring broke too")
                    break

    def _confirm_dead(self, node: NodeId, why: str) -> None:
        if self.views.confirm_dead(node, why):
            for peer in self.views.living():
                if peer != self.me:
                    self.ctx.send(peer, m.Obituary(node, why))

    # --- messages ---------------------------------------------------------------------------------

    def _receive(self, node: NodeId, message: m.Message) -> None:
        views = self.views
        match message:
            case m.Heartbeat():
                views.on_heartbeat(node, message)
            case m.Obituary(dead, why):
                views.confirm_dead(dead, f"{node} says: {why}")
            case m.ViewPropose(view):
                views.on_propose(node, view)
            case m.ViewAck(epoch):
                views.on_ack(node, epoch)
            case m.ViewNack():
                views.on_nack(node, message)
            case m.ViewForm(view):
                if views.on_form(node, view):
                    self._follow()
            case m.Jobs(records):
                self._merge(records)
                # Who tells of a job keeps it: its own answer to us may have been lost.
                self._kept(node, [record.id for record in records])
                self.ctx.send(node, m.JobsKept(tuple(record.id for record in records)))
            case m.JobsKept(jobs):
                self._kept(node, jobs)
            case m.Summary(job, fields):
                self.summaries[job] = fields
            case (
                m.MemberStatus()
                | m.Holding()
                | m.Listening()
                | m.Ready()
                | m.Fault()
                | m.Progress()
                | m.Digest()
                | m.ShardsWritten()
                | m.ManifestStored()
            ):
                driver = self.drivers.get(message.job)
                if driver is not None:
                    _to_driver(driver, node, message)
            case _:
                self._order(node, message)

    def _order(self, node: NodeId, message: Any) -> None:
        """The leader's orders; from anybody else they are stale."""
        view = self.views.view
        if view is None or node != view.leader:
            return
        if isinstance(message, m.ManifestStore):
            self.ctx.do(e.CommitManifest(message.job, message.manifest, message.keep))
            return
        job = message.world.job if isinstance(message, m.Form) else message.job
        member = self.members.get(job)
        if member is None:
            return
        match message:
            case m.Report():
                member.follow(view.epoch)
            case m.Freeze(epoch):
                if epoch == view.epoch:
                    member.on_freeze(message)
            case m.Form(world):
                if world.epoch == view.epoch:
                    member.on_form(message)
            case m.Go(_, generation):
                member.on_go(generation)
            case m.Continue(_, generation):
                member.on_continue(generation)
            case m.Formed(_, generation):
                member.on_formed(generation)
            case m.Verdict(_, generation, exact, reason):
                member.on_verdict(generation, exact, reason)
            case m.Hung(_, generation, why, seconds):
                member.on_hung(generation, why, seconds)
            case m.Release():
                member.on_release()
            case m.PullShards():
                member.on_pull(message)
            case m.Interval(_, generation, every, step):
                member.on_interval(generation, every, step)

    # --- views ------------------------------------------------------------------------------------

    def _follow(self) -> None:
        """A new view is ours: tell its leader what we hold; lead, if it is us."""
        view = self.views.view
        assert view is not None
        before = self.followed
        self.followed = view.epoch
        kept_lead = before is not None and before.leader == self.me == view.leader
        reborn = self.views.reborn
        self.ctx.log("info", "view", epoch=str(view.epoch), members=list(view.members))
        if self.views.leading:
            self._announce(before, view)
            for driver in self.drivers.values() if kept_lead else ():
                driver.on_view(view, reborn)
        if not kept_lead:
            self.drivers.clear()
        self._share_jobs([n for n in view.members if n != self.me])
        self._schedule()
        for member in self.members.values():
            member.follow(view.epoch)

    def _announce(self, before: Tag | None, view: m.View) -> None:
        old = set(self._last_members)
        for node in sorted(set(view.members) - old):
            if node != self.me or not old:
                self.ctx.emit(
                    "node_joined", f"{node} joined the view", culprit=node, epoch=view.epoch.counter
                )
        for node in sorted(old - set(view.members)):
            self.ctx.emit(
                "node_lost", f"{node} left the view", culprit=node, epoch=view.epoch.counter
            )

    _last_members: tuple[NodeId, ...] = ()

    # --- jobs -------------------------------------------------------------------------------------

    def _submit(self, request: int, record: m.JobRecord) -> None:
        self._update(record)
        self.ctx.emit(
            "job_submitted",
            f"{record.id} was submitted",
            record.id,
            name=record.spec["job"]["name"],
        )
        self._answer_when_kept(request, record.id, {"id": record.id})

    def _cancel(self, request: int, job: JobId) -> None:
        record = self.records.get(job)
        if record is None:
            self.ctx.do(e.Reply(request, {"error": f"no job {job}", "code": 1}))
            return
        if record.ended:
            self.ctx.do(e.Reply(request, {"id": job, "state": record.state}))
            return
        self._update(replace(record, state="cancelled", reason="cancelled by the user"))
        self.ctx.emit("job_cancelled", "cancelled by the user", job)
        self._answer_when_kept(request, job, {"id": job, "state": "cancelled"})

    def _answer_when_kept(self, request: int, job: JobId, body: dict[str, Any]) -> None:
        view = self.views.view
        nodes = {n for n in (view.members if view is not None else ()) if n != self.me}
        self.waiting.append(Waiting(request, job, nodes, body))

    def _kept(self, node: NodeId, jobs: Sequence[JobId]) -> None:
        for waiting in self.waiting:
            if waiting.job in jobs:
                waiting.nodes.discard(node)

    def _update(self, record: m.JobRecord) -> None:
        """Merge a record into the table; tell the others if that is news."""
        known = self.records.get(record.id)
        merged = record if known is None else known.merged(record)
        if merged == known:
            return
        self.records[record.id] = merged
        self.ctx.persist("job", merged)
        for node in self.views.living():
            if node != self.me:
                self.ctx.send(node, m.Jobs((merged,)))

    def _merge(self, records: Sequence[m.JobRecord]) -> None:
        for record in records:
            self._update(record)

    def _share_jobs(self, nodes: Sequence[NodeId]) -> None:
        if self.records:
            records = tuple(self.records[job] for job in sorted(self.records))
            for node in nodes:
                self.ctx.send(node, m.Jobs(records))

    def queue(self) -> list[m.JobRecord]:
        """All jobs in the order in which they were or will be run."""
        return sorted(self.records.values(), key=lambda record: (record.number, record.id))

    def _schedule(self) -> None:
        """As leader: run the first job of the queue that has not ended."""
        view = self.views.view
        if view is None or not self.views.leading:
            return
        unended = [record for record in self.queue() if not record.ended]
        running = [record for record in unended if record.state == "running"]
        if not running and unended:
            self._update(replace(unended[0], state="running"))
            running = [self.records[unended[0].id]]
        for record in running[:1]:
            if record.id not in self.drivers:
                self.drivers[record.id] = self._driver(record, view)
                for node in view.members:
                    self.ctx.send(node, m.Report(record.id))

    def _driver(self, record: m.JobRecord, view: m.View) -> Driver:
        spec, now = JobSpec.from_dict(record.spec), self.ctx.now
        checkpoints = Checkpoints(self.ctx, record.id, spec, view)
        return Driver(
            self.ctx,
            record,
            spec,
            view,
            checkpoints,
            Patience(spec.recovery.user_code_seconds),
            phase_since=now,
            started_at=now,
            relief=record.relief,
        )

    # --- after each event -------------------------------------------------------------------------

    def _settle(self) -> None:
        """Bring everything in line with what the event changed."""
        self._witness()
        self.views.tick()
        if self.views.view is not None:
            self._last_members = self.views.view.members
        self._keep_relief()
        self._end_jobs()
        self._schedule()
        for job, record in list(self.records.items()):
            self._attend(job, record)
        for driver in self.drivers.values():
            driver.tick()
            driver.maybe_summarise()
        if any(member.wants_reducer for member in self.members.values()):
            self.reducers.ensure()
        elif not self.members:
            self.reducers.drop()
        self._answer_waiting()

    def _attend(self, job: JobId, record: m.JobRecord) -> None:
        member = self.members.get(job)
        if member is None:
            if record.state != "running":
                return
            member = Member(self.ctx, record, JobSpec.from_dict(record.spec), self.reducers)
            member.stored = self.stored.get(job, ())
            member.world = next((w for w in self.stable.worlds if w.job == job), None)
            self.members[job] = member
            if self.views.view is not None:
                member.follow(self.views.view.epoch)
        if member.record != record or member.archive == "wanted":
            member.record = record
            member.reconcile()
        member.tick()
        if member.ended:
            del self.members[job]

    def _keep_relief(self) -> None:
        """What a leader gave up for want of memory goes into the job's record."""
        for job, driver in self.drivers.items():
            record = self.records[job]
            if driver.relief > record.relief:
                self._update(replace(record, relief=driver.relief))

    def _end_jobs(self) -> None:
        for job in list(self.drivers):
            driver = self.drivers[job]
            record = self.records[job]
            if driver.outcome is not None and not record.ended:
                state, reason = driver.outcome
                newest = driver.newest
                digest = newest.digest if state == "finished" and newest is not None else None
                ended = replace(
                    record, state=state, reason=reason or None, step=driver.committed, digest=digest
                )
                self._update(ended)
                generation = driver.world.generation.counter if driver.world is not None else None
                if state == "finished":
                    self.ctx.emit(
                        "job_finished", f"all {driver.committed} steps are done", job, generation,
                        steps=driver.committed, digest=digest,
                    )  # fmt: skip
                else:
                    self.ctx.emit("job_failed", reason, job, generation)
            if self.records[job].ended:
                self._keep_account(job, driver)
                driver.summary_due, driver.summary_at = True, 0.0
                driver.maybe_summarise()
                del self.drivers[job]

    def _keep_account(self, job: JobId, driver: Driver) -> None:
        record, summary = self.records[job], driver.summary()
        if record.account:
            return
        account = {key: summary[key] for key in _ACCOUNT}
        self._update(replace(record, step=max(record.step, driver.committed), account=account))

    def _answer_waiting(self) -> None:
        view = self.views.view
        members = set(view.members) if view is not None else set()
        for waiting in list(self.waiting):
            if not waiting.nodes & members:
                self.waiting.remove(waiting)
                self.ctx.do(e.Reply(waiting.request, waiting.body))

    # --- what the user sees -----------------------------------------------------------------------

    def job_status(self, job: JobId) -> dict[str, Any]:
        """One entry of ``status --json``'s jobs."""
        record = self.records[job]
        spec = JobSpec.from_dict(record.spec)
        fields: dict[str, Any] = {
            "generation": 0,
            "step": 0,
            "loss": None,
            "steps_per_second": 0.0,
            "recoveries": 0,
            "lost_steps": 0,
            "exact": spec.world.reduction == "exact",
            "bytes_per_step": 0,
            "digest": None,
            "digest_step": None,
            "ranks": [],
            **self.summaries.get(job, {}),
            **record.account,
        }
        if record.state != "running":
            fields |= {"state": record.state, "reason": record.reason, "ranks": []}
        if record.ended:
            fields["step"] = max(fields["step"], record.step)
        if record.state == "finished":
            fields |= {"digest": record.digest, "digest_step": record.step}
        return {
            "id": job,
            "name": spec.job.name,
            "state": "running",
            "reason": None,
            "steps": spec.train.steps,
            "global_batch": spec.batch.global_,
            "micro_batch": cut(spec.batch.global_, spec.batch.micro, record.relief).micro,
            "micro_batch_asked": spec.batch.micro,
            "relief": record.relief,
            **fields,
        }


def _to_driver(driver: Driver, node: NodeId, message: Any) -> None:
    match message:
        case m.MemberStatus():
            driver.on_status(node, message)
        case m.Holding():
            driver.on_holding(node, message)
        case m.Listening():
            driver.on_listening(node, message)
        case m.Ready():
            driver.on_ready(node, message)
        case m.Fault():
            driver.on_fault(node, message)
        case m.Progress():
            driver.on_progress(node, message)
        case m.Digest():
            driver.on_digest(node, message)
        case m.ShardsWritten():
            driver.on_shards(node, message)
        case m.ManifestStored():
            driver.on_manifest_stored(node, message)
