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
from typing import Any, assert_never

from elasticd.core.context import Context, Reach, Station, Timing
from elasticd.core.jobs.nodes import NodeTable
from elasticd.core.jobs.status import job_status
from elasticd.core.jobs.table import JobTable
from elasticd.core.jobs.tables import Tables
from elasticd.core.leading.drivers import Drivers
from elasticd.core.leading.herald import Herald
from elasticd.core.leading.summary import recalled
from elasticd.core.leading.turns import too_few
from elasticd.core.membership.liveness import Liveness
from elasticd.core.membership.views import Membership
from elasticd.core.membership.votes import Votes
from elasticd.core.taking_part.members import Members, OfNode
from elasticd.core.words import effects as e
from elasticd.core.words.messages import Message
from elasticd.core.words.records import JobRecord, World, remembered
from elasticd.core.words.stable import Found
from elasticd.core.words.tables import Departing, OfTables
from elasticd.core.words.views import (
    Heartbeat,
    Leaving,
    Missing,
    Obituary,
    OfLinks,
    OfViews,
    ViewAck,
    ViewForm,
    ViewNack,
    ViewPropose,
)
from elasticd.core.words.worlds import ToLeader, ToMember
from elasticd.errors import ElasticdError
from elasticd.recovery.regroup import check_shares
from elasticd.types import NO_SECRET, NO_TAG, JobId, NodeId, Secret, Tag

_EVENTS_PER_INSTANT = 10_000
"""More messages than this from one event means that two parts talk in circles."""


class InvariantError(ElasticdError):
    """The control plane would do what it must never do."""


@dataclass(frozen=True, slots=True)
class Who:
    """Who a node is, for one run of its daemon."""

    me: NodeId
    boot: str
    nonce: Callable[[], str]
    expected_peers: int
    timing: Timing = field(default_factory=Timing)
    wall: Callable[[], float] = lambda: 0.0
    station: Station = field(default_factory=Station)
    strict: bool = False
    """``partition = "strict"``: at most one view trains."""
    hosts: tuple[str, ...] = ()
    """This node's addresses, without ports, best first."""
    secret: Callable[[], Secret] = lambda: NO_SECRET
    """Draws 32 bytes that nobody can guess."""


class Node:
    """What one daemon knows and decides.

    Attributes:
        tables: what it keeps of all jobs and nodes.
        due: when it asked to be woken at the latest, in monotonic seconds.
        followed: the epoch of the view that it follows; None: none.
    """

    def __init__(self, who: Who, found: Found | None = None) -> None:
        found = found or Found()
        stable = found.stable
        self.me, self.boot, self._wall = who.me, who.boot, who.wall
        self.ctx = Context(
            who.me, who.nonce, who.timing, counter=stable.counter,
            station=who.station, reach=Reach(who.hosts), strict=who.strict, secret=who.secret,
        )  # fmt: skip
        for heard in stable.heard:
            self.ctx.hear(heard.job, heard.generation)
        configured = who.expected_peers + 1
        votes = Votes.of(
            self.ctx, configured, stable.born, stable.formed, stable.attempts, stable.lost,
            stable.since,
        )  # fmt: skip
        promised = stable.promised or NO_TAG
        self.views = Membership(self.ctx, votes, who.expected_peers, promised)
        self.members = Members.of(self.ctx, found)
        known = {record.node: record for record in stable.nodes}
        records = {record.id: remembered(record, known) for record in stable.records}
        jobs = JobTable(self.ctx, self._near, self._view_members, records)
        living = self.views.liveness.living
        nodes = NodeTable(self.ctx, living, self._view_members, self._near_members, known)
        self.tables = Tables(jobs, nodes, recalled(stable.worlds, stable.reached))
        self.drivers = Drivers(self.ctx, jobs, nodes)
        self.followed: Tag | None = None
        self.due = inf
        self._begun = False
        self._herald = Herald(self.ctx)
        self._checked: World | None = None

    @property
    def liveness(self) -> Liveness:
        return self.views.liveness

    @property
    def records(self) -> dict[JobId, JobRecord]:
        """Every job that the node knows of."""
        return self.tables.jobs.records

    def _view_members(self) -> tuple[NodeId, ...]:
        return self.views.view.members if self.views.view is not None else ()

    def _near(self) -> Sequence[NodeId]:
        """Whom to tell news that they pass on."""
        return self.liveness.attention.close(self.liveness.living())

    def _near_members(self) -> Sequence[NodeId]:
        return self.liveness.attention.close(self._view_members())

    # --- the contract -----------------------------------------------------------------------------

    def step(self, now: float, event: e.Event) -> list[e.Effect]:
        """Take in one event and return what is to be done, in order."""
        ctx = self.ctx
        ctx.begin(now, self._wall())
        self.members.late(late := self.liveness.detector.running(now, self.due))
        if self.views.wake(late):
            self._park()
        self.due = inf
        if not self._begun:
            self._begun = True
            self.tables.jobs.begins()
            self.tables.nodes.begins()
        self._take(event)
        for _ in range(_EVENTS_PER_INSTANT):
            if ctx.inbox:
                self._receive(self.me, ctx.next_message())
                continue
            self._settle()
            if not ctx.inbox:
                break
        else:
            raise InvariantError("the control plane does not come to rest")
        self.check()
        return ctx.effects

    def next_deadline(self) -> float:
        times = [*self.views.deadlines(), *self.members.deadlines(), *self.drivers.deadlines()]
        soonest = min((time for time in times if time > self.ctx.now), default=self.ctx.now + 1.0)
        self.due = soonest
        return soonest

    def check(self) -> None:
        """Invariants 1 and 2, as far as one node can see them."""
        for world, grains in self.drivers.dealt():
            if world is not self._checked:
                self._checked = world
                check_shares(grains, world.shares_now)
                check_shares(grains, world.shares)
                if len(set(world.members)) != len(world.members):
                    raise InvariantError(f"a node is twice in the world {world.generation}")
        for world in self.members.worlds_now():
            if world.generation.counter > self.ctx.counter:
                raise InvariantError(f"generation {world.generation} is above the counter")

    # --- events -----------------------------------------------------------------------------------

    def _take(self, event: e.Event) -> None:
        if self.members.put_off(event):
            return
        if isinstance(event, OfNode):
            self.members.on_event(event, self.views.view)
            return
        match event:
            case e.Tick():
                pass
            case e.PeerUp(node, boot, address, session):
                self.liveness.peer_up(node, boot, address, session)
                self.tables.share([node])
            case e.PeerDown(node, boot, reason):
                self.views.peer_down(node, boot, reason)
            case e.Leave(reason):
                self.views.leave(reason)
            case e.Stay():
                self.views.stay()
            case e.Paths(node, paths):
                self.ctx.learn(node, paths)
                self.members.on_ways(gather=self.liveness.circle.sparse)
            case e.Received(node, message):
                if self.liveness.heard(node):
                    self.tables.share([node])
                self._receive(node, message)
            case e.Submit() | e.Cancel() | e.Forget() | e.Discard() | e.Pause() | e.Retry():
                self.tables.asked(event)
            case e.SpeedsMeasured(job, seconds, reason):
                self.drivers.measured(job, seconds, reason)
            case e.Drain(request, node, draining, out):
                self.tables.nodes.drain(request, node, draining, self.state_of, out=out)
            case e.Dismiss(request, node):
                there = node in self.liveness.living() or node in self._view_members()
                self.tables.nodes.dismiss(request, node, there=there)
            case e.Depart():
                self.tables.nodes.depart(self.me)
                for node in self._view_members():
                    if node != self.me:
                        self.ctx.send(node, Departing())
            case _:
                assert_never(event)

    def _witness(self) -> None:
        """A ring that broke just now speaks against every suspect that is in the same world."""
        window = self.ctx.timing.return_seconds
        for node in self.liveness.suspects():
            if self.members.broke_lately(node, window):
                self._confirm_dead(node, "its ring broke too")

    def _confirm_dead(self, node: NodeId, why: str) -> None:
        if self.liveness.confirm_dead(node, why):
            for peer in self.liveness.living():
                if peer != self.me:
                    self.ctx.send(peer, Obituary(node, why))

    # --- messages ---------------------------------------------------------------------------------

    def _receive(self, node: NodeId, message: Message) -> None:
        if isinstance(message, OfViews):
            self._of_views(node, message)
        elif isinstance(message, OfTables):
            self.tables.hear(node, message)
        elif isinstance(message, ToLeader):
            self.drivers.receive(node, message)
        elif isinstance(message, ToMember):
            view = self.views.view
            if view is not None and node == view.leader:
                self.members.on_order(node, message, view, bool(self.views.bound))
        elif isinstance(message, OfLinks):
            raise InvariantError(f"{type(message).__name__} is the endpoint's")
        else:
            assert_never(message)

    def _of_views(self, node: NodeId, message: OfViews) -> None:
        views = self.views
        match message:
            case Heartbeat():
                views.on_heartbeat(node, message)
            case Missing():
                self.liveness.on_missing(node, message)
            case Obituary(dead, why):
                self.liveness.confirm_dead(dead, f"{node} says: {why}")
            case Leaving(reason):
                if views.on_leaving(node, reason):
                    self._herald.tell_why(node, reason, views.installed.counter)
            case ViewPropose(view):
                views.on_propose(node, view)
            case ViewAck():
                views.on_ack(node, message)
            case ViewNack():
                views.on_nack(node, message)
            case ViewForm(view):
                if views.on_form(node, view):
                    self._follow()
            case _:
                assert_never(message)

    # --- views ------------------------------------------------------------------------------------

    def _follow(self) -> None:
        """A new view is ours: tell its leader what we hold; lead, if it is us."""
        view = self.views.view
        assert view is not None
        before, self.followed = self.followed, view.epoch
        kept_lead = before is not None and before.leader == self.me == view.leader
        reborn = self.liveness.following.reborn
        self.ctx.log("info", "view", epoch=str(view.epoch), members=list(view.members))
        if self.views.leading:
            self._herald.announce(view)
            self._herald.tell_of_parking(view, self.tables.jobs.queue())
            if kept_lead:
                self.drivers.on_view(view, reborn, self.liveness.following.missed)
        if not kept_lead:
            self.drivers.drop()
        self.tables.jobs.follow()
        self.tables.share([n for n in self._near_members() if n != self.me])
        self._park()
        self.tables.nodes.follow(view.members, reborn)
        self._schedule()
        self.members.follow(view)

    def _park(self) -> None:
        """Where nothing may train nobody drives a job, and every world is left at once."""
        if self.views.view is None:
            self.followed = None
            self.drivers.drop()
        if parked := self.views.parked:
            self.drivers.drop()
            if not self.views.starting:
                self.members.suspend(parked)

    # --- after each event -------------------------------------------------------------------------

    def _settle(self) -> None:
        """Bring everything in line with what the event changed."""
        self._maybe_adopt()
        self._witness()
        self.views.tick()
        self._park()
        self._herald.note(self.views.view)
        self.drivers.keep_records()
        self._schedule()
        unwanted, view = self.me in self.tables.nodes.unwanted(), self.views.view
        there = view.members if view is not None else (self.me,)  # nobody else is known to be
        if idle := self.tables.nodes.standing().idle:
            there = tuple(node for node in there if node not in idle)
        live = self.tables.jobs.live
        for record in [self.records[job] for job in (*self.members.ending(live), *live)]:
            self.members.attend(record, view, unwanted=unwanted, short=too_few(record, there))
        self.drivers.tick()
        self.members.mind_reducers()
        self.tables.jobs.answer()
        self.tables.nodes.answer()

    def _schedule(self) -> None:
        if self.views.view is not None and self.views.leading and not self.views.parked:
            self.drivers.schedule(self.views.view)

    def _maybe_adopt(self) -> None:
        """Go on with the children of the daemon before us once all have said how they are."""
        if (later := self.members.take_over(self.records)) is None:
            return
        for event in later:
            self._take(event)
        if self.views.view is not None:
            self.members.follow(self.views.view)

    # --- what the user sees -----------------------------------------------------------------------

    def state_of(self, node: NodeId) -> str:
        """``alive``, ``suspect``, ``dead`` or ``draining``."""
        state = self.liveness.state_of(node)
        return "draining" if state == "alive" and self.tables.nodes.draining(node) else state

    def may_stop(self) -> bool:
        """Whether nobody who stays trains with a rank of ours."""
        return not self.members.train_with(set(self._view_members()) - self.tables.nodes.unwanted())

    def may_end(self) -> bool:
        """Whether the others can do without another word of ours, once we have left."""
        return not self.views.votes.owed

    def job_status(self, job: JobId) -> dict[str, Any]:
        """One entry of ``status --json``'s jobs."""
        record = self.tables.jobs.records[job]
        runnable = [each.id for each in self.tables.jobs.runnable()]
        position = runnable.index(job) + 1 if job in runnable else None
        waits = self.drivers.waits_for(record, self._view_members())
        told = self.tables.summaries.get(job, {})
        return job_status(record, told, position, self.views.parked, waits)
