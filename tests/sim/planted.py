"""Bugs planted on purpose, to see that the checkers see: ``python tests/sim/planted.py``.

Each is a switch for tests only, which replaces a piece of the control plane by one that is wrong in
a way that people get such things wrong. Reported is how many seeds it took until a checker spoke.

Long because it is a catalogue: a few lines for each bug, of which none needs another.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

if not __package__:
    # A script belongs to no package; what follows is imported as if it did.
    sys.path[0] = str(Path(__file__).resolve().parents[1])
    __package__ = "sim"

from elasticd.checkpoints.line import traced
from elasticd.core.context import Context, Station
from elasticd.core.duties import Duties, Flush, Mark
from elasticd.core.endpoint import Endpoint
from elasticd.core.jobs import ended
from elasticd.core.jobs.ended import EndedJobs
from elasticd.core.jobs.nodes import ALL_ALIKE, NodeDuties, NodeTable
from elasticd.core.jobs.table import JobTable
from elasticd.core.leading import council, making, planning
from elasticd.core.leading.checkpointing import Checkpoints
from elasticd.core.leading.exactness import Exactness
from elasticd.core.leading.leader import Driver
from elasticd.core.leading.office import Office
from elasticd.core.leading.oncpu import OnCpu
from elasticd.core.leading.phases import differing, unfit
from elasticd.core.leading.phases.moves import Outcome
from elasticd.core.leading.roster import Roster
from elasticd.core.leading.trust import Trust
from elasticd.core.membership.sessions import Session
from elasticd.core.membership.views import Membership
from elasticd.core.membership.votes import Votes
from elasticd.core.node import Node
from elasticd.core.recall import Recall
from elasticd.core.saving import testimony
from elasticd.core.saving.replicas import Replicas
from elasticd.core.saving.testimony import Testimony
from elasticd.core.taking_part.elastic import Elastic
from elasticd.core.words import effects as e
from elasticd.core.words.messages import Message
from elasticd.core.words.records import JobRecord, View, World
from elasticd.core.words.shards import ShardsWritten
from elasticd.core.words.stable import Stable
from elasticd.core.words.views import ViewAck
from elasticd.core.words.worlds import Form
from elasticd.recovery import divergence, quorum, regroup, restore
from elasticd.recovery.likeness import Kinds
from elasticd.train.protocol.arrivals import Arrivals
from elasticd.train.protocol.calls import Calls
from elasticd.types import NO_SECRET, JobId, Lineage, NodeId, Secret

from .chips import Chips
from .cluster import JobShape, Setup, Weather
from .disk import Disk
from .run import Result, simulate
from .scripts import (
    crash_before_it_is_formed,
    crash_on_slow_disks,
    forget_while_one_is_away,
    kill_who_has_answered,
    leader_leaves,
    lose_two_journals,
    restart_leader_at_the_end,
    sleep_through_a_lineage,
    stop_the_only_member,
)
from .seeds import setup_of
from .strikes import AGEING_KINDS


@dataclass(slots=True)
class Switches:
    """Attributes that are replaced, and what they were."""

    before: list[tuple[Any, str, Any]] = field(default_factory=list)

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Replace what is there; a name that is not would be a switch without a lamp."""
        self.before.append((owner, name, getattr(owner, name)))
        setattr(owner, name, value)

    def restore(self) -> None:
        while self.before:
            setattr(*self.before.pop())


@dataclass(frozen=True, slots=True)
class Bug:
    """``says``: what a checker's sentence has in it, one of these; ``bound``: in so many seeds."""

    name: str
    plant: Callable[[Switches], None]
    says: tuple[str, ...]
    kinds: tuple[str, ...] = ()
    bound: int = 10
    setup: Callable[[int], Setup] | None = None
    script: Any = None

    def runs(self) -> Iterator[Result]:
        for seed in range(self.bound):
            setup = self.setup(seed) if self.setup is not None else setup_of(seed, self.kinds)
            yield simulate(setup, script=self.script)


@dataclass(frozen=True, slots=True)
class Catch:
    seeds: int
    problem: str
    """Empty if nothing was found."""
    seconds: float


@contextmanager
def planted(bug: Bug) -> Iterator[None]:
    switches = Switches()
    try:
        bug.plant(switches)
        yield
    finally:
        switches.restore()


def hunt(bug: Bug) -> Catch:
    """Run seeds until a checker speaks of the bug."""
    began = time.process_time()
    with planted(bug):
        for number, result in enumerate(bug.runs(), 1):
            if any(text in result.problem for text in bug.says):
                return Catch(number, result.problem, time.process_time() - began)
    return Catch(bug.bound, "", time.process_time() - began)


# --- the bugs -------------------------------------------------------------------------------------


def stale_ack(switches: Switches) -> None:
    def on_ack(self: Membership, node: NodeId, ack: ViewAck) -> None:
        if self.ballot is not None:
            view = self.ballot.view
            real(self, node, replace(ack, epoch=view.epoch, attempted=view.primary))

    real = Membership.on_ack
    switches.set(Membership, "on_ack", on_ack)


def vote_counted_twice(switches: Switches) -> None:
    def on_ack(self: Membership, node: NodeId, ack: ViewAck) -> None:
        ballot = self.ballot
        if ballot is not None and ballot.view.epoch == ack.epoch:
            ballot.waiting -= set(sorted(ballot.waiting - {node})[:1])
        real(self, node, ack)

    real = Membership.on_ack
    switches.set(Membership, "on_ack", on_ack)


def view_without_promise(switches: Switches) -> None:
    def on_form(self: Membership, node: NodeId, view: View) -> bool:
        kept, self.promised = self.promised, view.epoch
        done = real(self, node, view)
        self.promised = kept
        return done

    real = Membership.on_form
    switches.set(Membership, "on_form", on_form)


def promise_forgotten(switches: Switches) -> None:
    real = Disk.stable
    switches.set(Disk, "stable", lambda self: replace(real(self), promised=None, counter=0))


def lineage_forgotten(switches: Switches) -> None:
    real = Disk.stable
    switches.set(Disk, "stable", lambda self: replace(real(self), worlds=()))


def lineage_kept_at_restore(switches: Switches) -> None:
    def from_checkpoint(at: Any, choice: Any, members: Any) -> planning.Start:
        start = real(at, choice, members)
        return replace(start, resume=replace(start.resume, point=choice.manifest.point))

    real = planning._from_checkpoint
    switches.set(planning, "_from_checkpoint", from_checkpoint)


def send_before_durable(switches: Switches) -> None:
    def step(self: Node, now: float, event: e.Event) -> list[e.Effect]:
        return sorted(real(self, now, event), key=lambda effect: isinstance(effect, e.Persist))

    real = Node.step
    switches.set(Node, "step", step)


def unflushed(switches: Switches) -> None:
    def handed_out(self: Duties, now: float) -> e.Outward | Mark | Flush | None:
        todo = real(self, now)
        if isinstance(todo, Flush):
            self.flushed()
        return todo

    real = Duties.next
    switches.set(Duties, "next", handed_out)


def heartbeat_ahead(switches: Switches) -> None:
    def repeat(self: Endpoint, now: float, node: NodeId, boots: Any, beat: Any) -> Any:
        return real(self, now, node, boots, self.node.liveness._heartbeat())

    real = Endpoint.repeat
    switches.set(Endpoint, "repeat", repeat)


def step_without_stamp(switches: Switches) -> None:
    switches.set(restore, "_same", lambda a, b: a.step == b.step)


def generation_reused(switches: Switches) -> None:
    def make_world(office: Office, *args: Any) -> World:
        before, nonce = office.world, office.ctx.nonce
        if before is not None and before.generation.leader == office.ctx.me:
            office.ctx.counter = before.generation.counter - 1
            office.ctx.nonce = lambda: before.generation.nonce
        made = real(office, *args)
        office.ctx.nonce = nonce
        return made

    real = making.make_world
    switches.set(making, "make_world", make_world)


def grain_twice(switches: Switches) -> None:
    _no_self_check(switches)

    def reshare(grains: int, kept: Any, members: Any, seconds: Any) -> regroup.Shares:
        return tuple(((0, grains),) for _ in members)

    switches.set(regroup, "reshare", reshare)


def sample_skipped(switches: Switches) -> None:
    def reshare(grains: int, kept: Any, members: Any, seconds: Any) -> regroup.Shares:
        return tuple(
            tuple((start, min(end, grains - 1)) for start, end in share)
            for share in real(grains, kept, members, seconds)
        )

    real = regroup.reshare
    _no_self_check(switches)
    switches.set(regroup, "reshare", reshare)


def _no_self_check(switches: Switches) -> None:
    """The core would notice by itself; the checkers outside have to, too."""
    switches.set(regroup, "check_shares", lambda grains, dealt: None)
    switches.set(Node, "check", lambda node: None)


def manifest_early(switches: Switches) -> None:
    switches.set(Replicas, "wanted", lambda self, checkpoint: 1)


def sync_that_lied(switches: Switches) -> None:
    real = Disk.sync

    def sync(self: Disk, *args: Any) -> Any:
        self.lies = True
        return real(self, *args)

    switches.set(Disk, "sync", sync)


def oldest_state(switches: Switches) -> None:
    def oldest(holdings: Any) -> restore.Held | None:
        held = [h for h in holdings.values() if h.point is not None]
        return min(held, key=lambda h: h.point.step, default=None)

    switches.set(restore, "best_held", oldest)


def minority_keeps_lineage(switches: Switches) -> None:
    switches.set(restore, "keeps_lineage", lambda last, present: True)


def fresh_trainer(switches: Switches) -> None:
    def on_form(self: Elastic, form: Form) -> None:
        trainer = self.crew.trainer
        self.answers.answerer = trainer.child if trainer is not None else None
        real(self, form)

    real = Elastic.on_form
    switches.set(Elastic, "on_form", on_form)


def result_of_a_state_given_up(switches: Switches) -> None:
    def returned(self: Calls, body: int, index: int, data: bytes) -> None:
        arrivals, self._arrivals = self._arrivals, Arrivals()
        try:
            real(self, body, index, data)
        finally:
            self._arrivals = arrivals

    real = Calls.returned
    switches.set(Calls, "returned", returned)


def work_lost_with_leader(switches: Switches) -> None:
    def on_shards(self: Checkpoints, node: NodeId, written: ShardsWritten, *how: Any) -> None:
        if written.generation.leader == self.ctx.me:
            real(self, node, written, *how)

    real = Checkpoints.on_shards
    switches.set(Checkpoints, "learn", lambda self, *reports: None)
    switches.set(Checkpoints, "on_shards", on_shards)


def odd_state_kept(switches: Switches) -> None:
    switches.set(Trust, "trusted", lambda self, node, holding, apart=frozenset(): holding)


def chips_blamed(switches: Switches) -> None:
    switches.set(Office, "are_apart", lambda self, digests, step: False)


def updates_moved(switches: Switches) -> None:
    """A world is made without knowing where the updates before it were made."""
    switches.set(OnCpu, "enter", lambda self, world, ours=None: "")
    switches.set(OnCpu, "recall", lambda self, told, ours: None)


def newcomer_overlooked(switches: Switches) -> None:
    switches.set(Roster, "prepared", lambda self, further_than: [])


def odd_bits_kept(switches: Switches) -> None:
    switches.set(Testimony, "outvoted", lambda self: [])
    switches.set(Testimony, "contested", False)
    switches.set(Checkpoints, "doubt", lambda self, odd, generation: None)


def odd_sums_kept(switches: Switches) -> None:
    switches.set(differing, "_may_go_back", lambda office, world, agreed: False)
    switches.set(Exactness, "lose", lambda self, why: None)


def by_rank_unnamed(switches: Switches) -> None:
    for module in (divergence, testimony):
        switches.set(module, "unlike", lambda parts: None)


def agreed_unheard(switches: Switches) -> None:
    switches.set(Testimony, "unanimous", lambda self, nodes: True)


def secret_of_before(switches: Switches) -> None:
    """One for all worlds of a job: who was a member of one before knows it."""

    def secret_of(office: Office, plan: Any, world: World) -> Secret:
        return kept.setdefault(world.job, real(office, plan, world))

    kept: dict[JobId, Secret] = {}
    real = making.secret_of
    switches.set(making, "secret_of", secret_of)


def secret_of_their_own(switches: Switches) -> None:
    """Another one for each member, as where each draws it."""

    def send(self: Context, to: NodeId, message: Message) -> None:
        if isinstance(message, Form) and message.secret:
            message = replace(message, secret=self.secret())
        sent(self, to, message)

    sent = Context.send
    switches.set(Context, "send", send)


def no_secret(switches: Switches) -> None:
    switches.set(making, "secret_of", lambda office, plan, world: NO_SECRET)


def never_resent(switches: Switches) -> None:
    switches.set(Session, "_resend", lambda self, now: self._wait(now) or [])


def duplicate_delivered(switches: Switches) -> None:
    def receive(self: Session, now: float, frame: Any) -> list[Message]:
        again = frame.number and self._inflow.had(frame.number) and frame.boots[1] == self.mine
        messages = real(self, now, frame)
        return [frame.message] if again and not messages else messages

    real = Session.receive
    switches.set(Session, "receive", receive)


def zeno_timer(switches: Switches) -> None:
    switches.set(Node, "next_deadline", lambda self: self.ctx.now)


def lost_tombstone(switches: Switches) -> None:
    def merged(self: JobRecord, other: JobRecord) -> JobRecord:
        states = {self.state, other.state}
        won = real(self, other)
        return replace(won, state="finished") if states == {"finished", "cancelled"} else won

    real = JobRecord.merged
    switches.set(JobRecord, "merged", merged)


def ambiguous_attempt(switches: Switches) -> None:
    switches.set(quorum, "undecided", lambda here, last: [])


def train_without_majority(switches: Switches) -> None:
    switches.set(quorum, "decide", lambda here: quorum.Decision(True, "all may"))


def loss_forgotten(switches: Switches) -> None:
    """A node whose journal was lost takes itself for a new one."""

    def stable(self: Recall) -> Stable:
        found: Stable = real.__get__(self)
        return replace(found, lost=False)

    real = Recall.__dict__["stable"]
    switches.set(Recall, "stable", property(stable))


def live_job_forgotten(switches: Switches) -> None:
    """Whether it has ended is left to the command line."""

    def forget(self: JobTable, request: int, job: JobId) -> None:
        if job in self.records:
            self.update(replace(self.records[job], forgotten=True))
        else:
            real(self, request, job)

    real = JobTable.forget
    switches.set(JobTable, "forget", forget)


def forgotten_not_joined(switches: Switches) -> None:
    """Of two records the better one counts, and which one was forgotten is no part of it."""

    def merged(self: JobRecord, other: JobRecord) -> JobRecord:
        if self.forgotten == other.forgotten:
            return real(self, other)
        return other if self.forgotten else self

    real = JobRecord.merged
    switches.set(JobRecord, "merged", merged)


def digested_once(switches: Switches) -> None:
    """What is told of an ended job is what it was when it ended."""

    def keep(self: EndedJobs, record: JobRecord) -> None:
        if record.id not in self.groups[ended.group_of(record.id)]:
            real(self, record)

    real = EndedJobs.keep
    switches.set(EndedJobs, "keep", keep)


def back_and_not_listed(switches: Switches) -> None:
    """A node that was taken off the list stays off it when it is back."""

    def follow(self: NodeTable, members: Sequence[NodeId], reborn: Sequence[NodeId]) -> None:
        self.departing &= {self.ctx.me, *members} - set(reborn)

    switches.set(NodeTable, "follow", follow)


def store_trains(switches: Switches) -> None:
    """It holds copies, so why not train from them?"""
    switches.set(Station, "trains", property(lambda self: self.role != "witness"))
    switches.set(NodeDuties, "idle", property(lambda self: self.witnesses))


def store_is_seated(switches: Switches) -> None:
    """A leader takes it along: it has an empty share, so what does it cost?"""

    def make_world(office: Office, *args: Any) -> World:
        made = real(office, *args)
        stores = sorted(office.wishes.standing.stores.intersection(office.view.members))
        seats: tuple[tuple[tuple[int, int], ...], ...] = ((),) * len(stores)
        return replace(
            made,
            members=(*made.members, *stores),
            sources=(*made.sources, *("init" for _ in stores)),
            hosts=(*made.hosts, *("" for _ in stores)),
            shares_now=(*made.shares_now, *seats),
            shares=(*made.shares, *seats),
        )

    real = making.make_world
    _no_self_check(switches)
    switches.set(making, "make_world", make_world)
    switches.set(making, "secret_of", lambda office, plan, world: NO_SECRET)  # it has said nothing


def roles_forgotten_with_leader(switches: Switches) -> None:
    """Who leads after another takes all nodes for alike, until it has made a world itself."""

    def want(self: Driver, record: JobRecord, away: Any, standing: Any = ALL_ALIKE) -> None:
        world = self.world
        heir = world is not None and world.generation.leader != self.office.ctx.me
        real(self, record, away, ALL_ALIKE if heir else standing)

    real = Driver.want
    switches.set(Driver, "want", want)


def witness_votes_from_memory(switches: Switches) -> None:
    """It has no job's state, so what for would it need a disk?"""

    def promise(self: Votes, view: View) -> None:
        before = len(self.ctx.effects)
        real(self, view)
        if self.ctx.station.role == "witness":
            del self.ctx.effects[before:]

    real = Votes.promise
    switches.set(Votes, "promise", promise)


def witness_is_a_place(switches: Switches) -> None:
    """Where too few nodes are there for all copies, it has room."""
    switches.set(Station, "holds", True)
    switches.set(Replicas, "places", property(lambda self: frozenset(self.view.members)))


def vote_not_journalled(switches: Switches) -> None:
    def promise(self: Votes, view: View) -> None:
        if self.owed and view.primary:
            self.owed = False  # It is about to end: what for should it write that down?
        else:
            real(self, view)

    real = Votes.promise
    switches.set(Votes, "promise", promise)


def newcomer_believed(switches: Switches) -> None:
    switches.set(Kinds, "among", lambda *shown: True)


def outside_forgotten(switches: Switches) -> None:
    switches.set(making, "forgets", lambda *given: "")


def witnesses_ignored(switches: Switches) -> None:
    switches.set(Kinds, "by_rank", lambda kinds, kept: None)


def cut_off_world_ignored(switches: Switches) -> None:
    switches.set(council, "noisy", lambda overtaken, quiet_seconds: "")


def pruned_by_a_broken_line(switches: Switches) -> None:
    """A node knows no checkpoint of the lineage from which this one came: so there was none."""

    def prune(self: Disk, job: JobId, lineage: Lineage, step: int, keep: int) -> None:
        known = [m for m in self.finals.values() if m.job == job]
        own, end = traced(known, lineage)
        for m in known if own and end is not None else ():
            if m not in own:
                del self.finals[m.job, m.step, m.stamp]
        real(self, job, lineage, step, keep)

    real = Disk.prune
    switches.set(Disk, "prune", prune)


_TWO = (JobShape(steps=40),)
_LOSSY = Weather(lost=0.1, duplicated=0.1, reordered=0.1)


def bad_node_ends_job(switches: Switches) -> None:
    """Whatever the others have come to."""

    def judge(office: Office) -> Outcome | None:
        failing = unfit.failing_nodes(office)
        return next((Outcome("failed", found.reason) for found in failing.values()), None)

    switches.set(unfit, "judge", judge)


def never_compared(switches: Switches) -> None:
    """Whatever a trainer has built, it is let in."""
    switches.set(Roster, "mismatch", lambda self, members: "")
    switches.set(Roster, "odd", lambda self, members, trained: {})


def _aged(seed: int) -> Setup:
    """Nodes die and are cut off while what they hold of the past is removed."""
    drawn = setup_of(seed, ("node", "partition", *AGEING_KINDS), nodes=3)
    return replace(drawn, past_jobs=300, fault_kinds=("node", "partition", *AGEING_KINDS))


def _old(seed: int) -> Setup:
    """So many jobs have ended that nodes compare digests of them. No fault but what is scripted."""
    return replace(_aged(seed), fault_seconds=0.0)


def _tidied(seed: int) -> Setup:
    """Operators tidy up all the time."""
    return replace(_aged(seed), past_jobs=20, fault_kinds=("forget",), mean_fault_seconds=0.5)


def _taken_off(seed: int) -> Setup:
    """Nodes are cut off for a while, and taken off the list meanwhile."""
    drawn = setup_of(seed, ("partition", "dismiss"), nodes=3)
    return replace(
        drawn,
        past_jobs=20,
        fault_kinds=("partition", "dismiss", "dismiss"),
        fault_seconds=12.0,
        mean_fault_seconds=0.5,
    )


def _one_bad(seed: int) -> Setup:
    return Setup(seed=seed, jobs=(JobShape(steps=60),), bad=((2, "unmounted", 100.0),))


def _stormy(seed: int) -> Setup:
    return replace(setup_of(seed, ("flap",)), weather=_LOSSY, mean_fault_seconds=4.0)


def _pair(seed: int) -> Setup:
    return Setup(seed=seed, nodes=2, jobs=_TWO)


def _slow_pair(seed: int) -> Setup:
    return Setup(seed=seed, nodes=2, jobs=_TWO, message_seconds=(0.01, 0.02))


def _lonely(seed: int) -> Setup:
    kinds = ("sleep", "stop_node", "world")
    shape = JobShape(steps=60, world_max=2)
    return Setup(seed=seed, nodes=3, jobs=(shape,), fault_seconds=12.0, fault_kinds=kinds)


def _of_32_steps(seed: int) -> Setup:
    return Setup(seed=seed, nodes=3, jobs=(JobShape(steps=32, every=5, keep=3),))


def _of_two_kinds(seed: int) -> Setup:
    shape = JobShape(verify_every=4)
    return Setup(seed=seed, nodes=3, jobs=(shape,), chips=Chips((0, 0, 1), seed % 2 == 0))


def _of_two_gpus(seed: int) -> Setup:
    kinds, chips = ("reducer", "node"), Chips((0, 0, 1), cpu=True)
    return Setup(
        seed=seed, nodes=3, jobs=(JobShape(steps=60),), chips=chips, fault_kinds=kinds,
        fault_seconds=8.0, mean_fault_seconds=1.0,
    )  # fmt: skip


def _goes_back_in_a_call(seed: int) -> Setup:
    shape = JobShape(every=5, verify_every=4, calls=3)
    return Setup(
        seed=seed, nodes=3, jobs=(shape,), fault_seconds=4.0, fault_kinds=("diverge",),
        mean_fault_seconds=1.0,
    )  # fmt: skip


def _by_rank(seed: int) -> Setup:
    return Setup(seed=seed, nodes=3, jobs=(JobShape(by_rank=True),))


def _cramped(seed: int) -> Setup:
    kinds = ("diverge", "diverge", "disk_full")
    shape = JobShape(steps=60, every=3, verify_every=4)
    return Setup(seed=seed, nodes=3, jobs=(shape,), fault_seconds=12.0, fault_kinds=kinds)


def _cut_and_slow(seed: int) -> Setup:
    """While a disk is slow there is time for another view."""
    kinds, jobs = ("partition", "one_way", "disk_slow"), (JobShape(steps=30),)
    return Setup(seed=seed, nodes=7, jobs=jobs, fault_seconds=15.0, fault_kinds=kinds)


def _forgetful(seed: int) -> Setup:
    shape = JobShape(steps=60, outside=("grain", "body")[seed % 2])
    kinds = ("trainer", "spare_trainer")
    return Setup(seed=seed, nodes=3, jobs=(shape,), fault_seconds=6.0, fault_kinds=kinds)


def _by_rank_rarely_compared(seed: int) -> Setup:
    """Somebody joins before members compare their states."""
    shape = JobShape(steps=60, by_rank=True, every=50, verify_every=0)
    return Setup(seed=seed, nodes=3, jobs=(shape,), fault_seconds=6.0, fault_kinds=("trainer",))


def _with_a_store(seed: int) -> Setup:
    return Setup(seed=seed, nodes=3, jobs=(JobShape(),), roles=("train", "store", "train"))


def _with_a_store_led_by_others(seed: int) -> Setup:
    """Its leader is killed again and again."""
    shape = JobShape(steps=60)
    return Setup(
        seed=seed, nodes=4, jobs=(shape,), roles=("train", "train", "train", "store"),
        fault_seconds=15.0, fault_kinds=("node",),
    )  # fmt: skip


def _with_a_witness(seed: int) -> Setup:
    shape = JobShape(replicas=3)
    return Setup(seed=seed, nodes=3, jobs=(shape,), roles=("witness", "train", "train"))


def _strict_with_a_witness(seed: int) -> Setup:
    return replace(_with_a_witness(seed), partition="strict")


def _strict(seed: int) -> Setup:
    return replace(setup_of(seed, ("partition", "node")), partition="strict")


def _strict_pair(seed: int) -> Setup:
    return Setup(seed=seed, nodes=2, jobs=(JobShape(steps=100),), partition="strict")


def _strict_three(seed: int) -> Setup:
    return Setup(seed=seed, nodes=3, jobs=(JobShape(steps=600),), partition="strict")


def _strict_world_of_one(seed: int) -> Setup:
    shape = JobShape(steps=2000, every=20, world_max=1)
    return Setup(seed=seed, nodes=3, jobs=(shape,), partition="strict")


_UNPROMISED = ("has not promised",)
_TWICE = ("committed twice, differently", "is committed")
_CRASHES = ("crash", "node", "daemon")
_CUTS = ("partition", "silence", "one_way", "stop_node")
_SPLIT = ("is primary with",)
_HALVES = ("partition", "silence", "stop_node")

BUGS = (
    Bug("accept a stale ack", stale_ack, _UNPROMISED, _CUTS, 60),
    Bug("count a vote twice", vote_counted_twice, _UNPROMISED, _CUTS, 60),
    Bug(
        "form a view without promise",
        view_without_promise,
        ("it has promised",),
        setup=_cut_and_slow,
        bound=40,
    ),
    Bug("forget promises on restart", promise_forgotten, ("promises",), _CRASHES, 60),
    Bug("forget the lineage on restart", lineage_forgotten, ("its disk has",), _CRASHES, 60),
    Bug("open no lineage at a restore", lineage_kept_at_restore, _TWICE, ("power_cut",), 60),
    Bug("send before durable", send_before_durable, ("disk does not have",), bound=2),
    Bug("don't wait for the journal", unflushed, ("disk does not have",), bound=2),
    Bug(
        "let a heartbeat overtake a record",
        heartbeat_ahead,
        ("disk does not have",),
        setup=lambda seed: Setup(seed=seed, nodes=3, jobs=(JobShape(steps=60),)),
        bound=10,
        script=crash_on_slow_disks,
    ),
    Bug("resume by step, not stamp", step_without_stamp, ("is to keep", "mixes"), _HALVES, 200),
    Bug("reuse a generation", generation_reused, ("names two worlds",), ("trainer",), 10),
    Bug("compute a grain twice", grain_twice, ("uses grains",), bound=5),
    Bug("skip a sample", sample_skipped, ("uses grains",), bound=5),
    Bug(
        "prune what an unknown lineage came from",
        pruned_by_a_broken_line,
        ("has lost shard",),
        setup=_of_32_steps,
        bound=3,
        script=sleep_through_a_lineage,
    ),
    Bug("commit a manifest early", manifest_early, ("is announced",), bound=10),
    Bug("trust a sync that lied", sync_that_lied, ("is announced",), bound=10),
    Bug("resume the oldest state", oldest_state, ("although",), ("reducer", "stop_node"), 100),
    Bug("let a minority keep the lineage", minority_keeps_lineage, _TWICE, ("partition",), 60),
    Bug(
        "lose work with its leader",
        work_lost_with_leader,
        ("do not end",),
        setup=_pair,
        bound=5,
        script=restart_leader_at_the_end,
    ),
    Bug(
        "keep a state that is found to differ",
        odd_state_kept,
        ("not the others'", "told to differ"),
        ("diverge",),
        20,
    ),
    Bug(
        "let the bits of who diverged into a checkpoint",
        odd_bits_kept,
        ("who diverged",),
        ("diverge", "trainer", "reducer"),
        200,
    ),
    Bug(
        "go on with sums of who diverged",
        odd_sums_kept,
        ("has sums of who diverged",),
        ("diverge",),
        20,
    ),
    Bug(
        "call it a divergence what a script keeps by rank",
        by_rank_unnamed,
        ("is called a divergence",),
        setup=_by_rank,
        bound=2,
    ),
    Bug(
        "blame a node for its chip",
        chips_blamed,
        ("all states are alike",),
        setup=_of_two_kinds,
        bound=2,
    ),
    Bug(
        "make later updates elsewhere than the first ones",
        updates_moved,
        ("earlier ones were made elsewhere",),
        setup=_of_two_gpus,
        bound=3,
    ),
    Bug(
        "call a state agreed that some have not told of",
        agreed_unheard,
        ("has sums of who diverged",),
        setup=_cramped,
        bound=100,
    ),
    Bug(
        "overlook what a newcomer holds",
        newcomer_overlooked,
        ("although",),
        setup=_lonely,
        bound=40,
    ),
    Bug("let a store train", store_trains, ("is a store and does",), setup=_with_a_store, bound=2),
    Bug("seat a store as a member", store_is_seated, ("seats",), setup=_with_a_store, bound=2),
    Bug(
        "forget roles when the leader changes",
        roles_forgotten_with_leader,
        ("are to have a copy",),
        setup=_with_a_store_led_by_others,
        bound=6,
    ),
    Bug(
        "put shards on a witness",
        witness_is_a_place,
        ("is a witness and does",),
        setup=_with_a_witness,
        bound=2,
    ),
    Bug(
        "let a witness vote without its journal",
        witness_votes_from_memory,
        _UNPROMISED,
        setup=_strict_with_a_witness,
        bound=3,
    ),
    Bug("never resend", never_resent, ("within",), setup=_stormy, bound=10),
    Bug("deliver a duplicate", duplicate_delivered, ("twice, late",), setup=_stormy, bound=10),
    Bug("a timer that is always due", zeno_timer, ("within a second",), bound=3),
    Bug("end a cancelled job", lost_tombstone, ("was cancelled",), ("cancel", "partition"), 200),
    Bug(
        "form a view on an ambiguous attempt",
        ambiguous_attempt,
        ("is primary with",),
        setup=_strict_three,
        bound=3,
        script=crash_before_it_is_formed,
    ),
    Bug(
        "take a lost journal for a new node's",
        loss_forgotten,
        _SPLIT,
        setup=_strict_three,
        bound=3,
        script=lose_two_journals,
    ),
    Bug("train without the majority", train_without_majority, _SPLIT, setup=_strict, bound=60),
    Bug(
        "leave without a vote in the journal",
        vote_not_journalled,
        ("has not voted",),
        setup=_strict_pair,
        bound=3,
        script=leader_leaves,
    ),
    Bug(
        "go on while a world that is cut off may train",
        cut_off_world_ignored,
        ("trains although",),
        setup=_strict_world_of_one,
        bound=3,
        script=stop_the_only_member,
    ),
    Bug("end the job for one bad node", bad_node_ends_job, ("failed",), setup=_one_bad, bound=2),
    Bug("compare no fingerprints", never_compared, ("built",), ("other", "trainer"), 40),
    Bug(
        "believe a newcomer whatever it computes",
        newcomer_believed,
        ("computes otherwise",),
        setup=_forgetful,
        bound=20,
    ),
    Bug(
        "call exact what has lost state kept outside",
        outside_forgotten,
        ("is called exact",),
        setup=_forgetful,
        bound=40,
    ),
    Bug(
        "blame a newcomer for what differs by rank",
        witnesses_ignored,
        ("nothing differs",),
        setup=_by_rank_rarely_compared,
        bound=20,
    ),
    Bug(
        "forget a job that trains", live_job_forgotten, ("has not ended",), setup=_tidied, bound=40
    ),
    Bug(
        "remember what was forgotten",
        forgotten_not_joined,
        ("the past differs", "was forgotten"),
        setup=_aged,
    ),
    Bug(
        "digest an ended job once",
        digested_once,
        ("the past differs",),
        setup=_old,
        bound=3,
        script=forget_while_one_is_away,
    ),
    Bug(
        "keep a node that is back off the list",
        back_and_not_listed,
        ("the past",),
        setup=_taken_off,
    ),
    Bug("tell ranks no secret", no_secret, ("told no secret",), ("stranger",), 3),
    Bug("use a secret again", secret_of_before, ("the secret of",), ("stranger",), 5),
    Bug("give each rank a secret", secret_of_their_own, ("different secrets",), ("stranger",), 3),
    Bug(
        "take a call's result for another state's",
        result_of_a_state_given_up,
        ("in a wrong state",),
        setup=_goes_back_in_a_call,
        bound=30,
    ),
    Bug(
        "put a fresh trainer in a dead one's place",
        fresh_trainer,
        ("is to keep", "before Run"),
        setup=_slow_pair,
        bound=5,
        script=kill_who_has_answered,
    ),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", nargs="*", help="only bugs whose names have these words")
    given = parser.parse_args()
    bugs = [bug for bug in BUGS if all(word in bug.name for word in given.name)]
    caught = 0
    for bug in bugs:
        catch = hunt(bug)
        caught += bool(catch.problem)
        told = f"{catch.seeds:>4} seeds {catch.seconds:6.1f} s   {catch.problem[:110]}"
        print(f"{bug.name:42} {told if catch.problem else f'NOT FOUND in {catch.seeds} seeds'}")
    print(f"caught {caught} of {len(bugs)}")
    return 0 if caught == len(bugs) else 1


if __name__ == "__main__":
    sys.exit(main())
