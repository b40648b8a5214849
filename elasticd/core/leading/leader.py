"""The leader's part in one job: forms its worlds, notices faults, recovers, lets members in, ends
it.

Rebuilt from what the members report whenever a leader is elected; nothing here has to survive.

    waiting ──enough trainers──▶ freezing ──all have answered──▶ forming ──all ready──▶ running
       ▲                            ▲  ▲                            │                      │
       │                            │  └────────── a fault ─────────┘                      │
       └──── fewer than world.min ──┴─────────── a fault, or a trainer that may enter ─────┘
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from elasticd.checkpoints.layout import placement
from elasticd.checkpoints.manifest import Manifest
from elasticd.core.context import Context
from elasticd.core.leading import planning, routing, summary
from elasticd.core.leading.account import Account
from elasticd.core.leading.balance import Balance
from elasticd.core.leading.checkpointing import Checkpoints
from elasticd.core.leading.exactness import Exactness
from elasticd.core.leading.formation import Formation
from elasticd.core.leading.growth import Growth
from elasticd.core.leading.halting import Halting, Rest
from elasticd.core.leading.histories import Histories
from elasticd.core.leading.patience import Patience
from elasticd.core.leading.planning import Start
from elasticd.core.leading.relief import Relief
from elasticd.core.leading.roster import HOLDING, LEFT, Roster
from elasticd.core.leading.trust import Trust
from elasticd.core.words.records import GOING_BACK, JobRecord, JobState, View, World
from elasticd.core.words.shards import Digest, ManifestStored, ShardsFailed, ShardsWritten
from elasticd.core.words.tables import Summary
from elasticd.core.words.worlds import (
    Discharge,
    Fault,
    Formed,
    Freeze,
    Holding,
    Hung,
    Lent,
    Listening,
    MemberStatus,
    Noted,
    Prepared,
    Pressed,
    Progress,
    Ready,
    Rechecked,
    Release,
)
from elasticd.recovery import faults, recheck
from elasticd.recovery.faults import RING_FAULTS
from elasticd.settings.job import JobSpec
from elasticd.types import NO_TAG, NodeId, Tag

_LONGEST_PAUSE = 5
"""Doublings of the pause between tries."""


@dataclass(slots=True)
class Driver:
    ctx: Context
    record: JobRecord
    spec: JobSpec
    roster: Roster
    checkpoints: Checkpoints
    patience: Patience
    account: Account
    trust: Trust
    growth: Growth
    halting: Halting
    formation: Formation
    balance: Balance
    relief: Relief
    exactness: Exactness
    histories: Histories
    phase: str = "waiting"
    phase_since: float = 0.0
    started_at: float = 0.0
    why_waiting: str = "trainers are starting"
    hold_off: float = 0.0
    """Before this time nothing can have changed that made the last plan impossible."""
    unread: int = 0
    """Checkpoints in a row that a member could not read, nor have from another."""
    read_again_at: float = 0.0
    rests_until: float = 0.0
    """Recovery after recovery had come to nothing."""
    oriented: bool = False
    """We know what world the members are in, which an earlier leader may have formed."""
    world: World | None = None
    serial: str = ""
    cause: str = ""
    """Why a world is left that nothing has broken."""
    asked: set[NodeId] = field(default_factory=set)
    holdings: dict[NodeId, Holding] = field(default_factory=dict)
    compared: set[NodeId] = field(default_factory=set)
    """Members of the view whose states were compared with the others'."""
    progress: dict[NodeId, Progress] = field(default_factory=dict)
    committed: int = 0
    moved_at: float = 0.0
    """When a member last delivered, applied or committed something."""
    loss: float | None = None
    released: set[NodeId] = field(default_factory=set)
    outcome: tuple[JobState, str] | None = None
    """(state, reason) once the job has ended; the node writes it into the job's record."""
    unwanted: frozenset[NodeId] = frozenset()
    """Nodes that no job is to run on."""
    discharged: set[NodeId] = field(default_factory=set)
    rest: Rest | None = None
    """Once a paused job is at rest; the node writes it into the job's record."""
    resumed: bool = False
    """The next world goes on from where the job was paused: no recovery."""
    parked: bool = False
    """It was told that too few members are there."""
    summary_at: float = 0.0
    summary_due: bool = True

    @classmethod
    def of(cls, ctx: Context, record: JobRecord, view: View) -> Driver:
        """The leader of ``view`` begins to drive a job."""
        spec, job = JobSpec.from_dict(record.spec), record.id
        account, trust = Account(ctx, job), Trust(ctx, job)
        return cls(
            ctx,
            record,
            spec,
            Roster(view),
            Checkpoints(ctx, job, spec, view),
            Patience(spec.recovery.user_code_seconds),
            account,
            trust,
            Growth(ctx, job),
            Halting(ctx, job),
            Formation(ctx),
            Balance(ctx, job, spec, account, trust),
            Relief(ctx, job, spec.batch, record.relief),
            Exactness(ctx, fast=spec.world.reduction != "exact"),
            Histories(ctx, job, record.left, record.ran),
            phase_since=ctx.now,
            started_at=ctx.now,
        )

    @property
    def view(self) -> View:
        """The view that we lead."""
        return self.roster.view

    @property
    def statuses(self) -> dict[NodeId, MemberStatus]:
        """What the members of the view said last."""
        return self.roster.statuses

    # --- reports of members -----------------------------------------------------------------------

    @property
    def newest(self) -> Manifest | None:
        """The newest consistent checkpoint."""
        return self.checkpoints.newest

    def on_status(self, node: NodeId, status: MemberStatus) -> None:
        if status.epoch != self.view.epoch:
            return
        self.ctx.saw(status.counter)
        self.statuses[node] = status
        if not self._silent():
            self.checkpoints.learn(self.roster.stored())
        self.checkpoints.domains[node] = status.domain
        self.summary_due, self.hold_off = True, 0.0
        if status.fatal:
            self._fail(status.fatal)
        world = self.world
        if world is not None and status.world is not None:
            if status.world.generation == world.generation:
                self.committed = max(self.committed, status.committed)
            elif status.world.generation > world.generation and self.phase == "waiting":
                # The other side of a partition went on while we waited. What is told of its
                # checkpoints before we take its world over counts.
                self.oriented, self.checkpoints.world = False, None
        if self.phase == "running" and world is not None and node in world.members:
            self._look_for_faults(node, status, world)
        self.evaluate()

    def _look_for_faults(self, node: NodeId, status: MemberStatus, world: World) -> None:
        """What a member's status says against it, if word of it was lost with a connection or
        leader."""
        phase = status.trainer.phase if status.trainer is not None else ""
        if status.ready or phase in LEFT:
            return
        here = status.world is not None and status.world.generation == world.generation
        for fault, text in status.faults if here else ():
            self._blame(node, fault, text)
        if not status.faults and phase not in HOLDING:
            self._blame(node, "peer_lost", f"{node} was started again")

    def on_fault(self, node: NodeId, fault: Fault) -> None:
        if fault.fatal:
            self._fail(fault.fatal)
            return
        status = self.statuses.get(node)
        exited = fault.fault == "worker_exit" or fault.status is not None
        if exited and status is not None:
            # What its daemon said of that trainer is out of date.
            self.statuses[node] = replace(status, trainer=None, ready=False)
        if not self.oriented:
            # Its status may have been sent before.
            if status is not None:
                piece = (fault.fault, fault.evidence)
                known = self.statuses[node]
                self.statuses[node] = replace(known, ready=False, faults=(*known.faults, piece))
            return
        stale = self.world is not None and fault.generation < self.world.generation
        ending = self.phase == "freezing" and self.account.recovery is None
        broke = fault.fault in RING_FAULTS and fault.fault != "reducer_lost"
        if (stale and not exited) or (ending and broke):
            return  # a ring breaks, too, because a neighbour has heard of its end sooner
        members = self.world.members if self.world is not None else self.view.members
        if hopeless := self.trust.count(fault, self.committed + 1, members):
            self._fail(hopeless)
        seen = self.ctx.now - fault.age_seconds
        self._blame(fault.culprit, fault.fault, fault.evidence, seen, exited, fault.confidence)
        self.evaluate()

    def on_view(
        self, view: View, reborn: tuple[NodeId, ...], missed: tuple[NodeId, ...] = ()
    ) -> None:
        """A new view under the same leader: what was asked in the old one is void.

        ``reborn`` are members whose daemon was started again, ``missed`` those that may have missed
        an order. A world that is forming goes on forming if none of its members is among them.
        """
        lost = [n for n in self.view.members if n not in view.members]
        self.roster.view = view
        self.checkpoints.on_view(view, (*lost, *reborn))
        self.statuses.clear()
        self.compared.clear()
        self.released, self.hold_off = set(), 0.0
        self.exactness.judged.clear()
        self.read_again_at = self.rests_until = 0.0
        self.growth.reset()
        self.halting.reset()
        self.discharged.clear()
        if self.phase == "freezing":
            self._enter("waiting", "the view changed")
        self._blame_lost(lost)
        for node in reborn:
            # Its trainer may have outlived its daemon: its status will say. Until then nothing was
            # heard of the phases that it went through.
            self.patience.places.pop(node, None)
        members = self.world.members if self.world is not None else ()
        # With partition = "strict" orders are refused while a view is being voted on.
        void = self.ctx.strict or not set(members).isdisjoint((*lost, *reborn, *missed))
        if self.phase == "forming" and void:
            self._enter("waiting", "the view changed while the world formed")
        self.evaluate()

    def _blame_lost(self, nodes: list[NodeId]) -> None:
        for node in nodes:
            if self.world is not None and node in self.world.members:
                seen = self.ctx.lost.get(node, self.ctx.now)
                self._blame(node, "peer_lost", self.ctx.farewell(node), seen)

    def _blame(
        self,
        culprit: NodeId,
        fault: str,
        text: str,
        seen: float | None = None,
        exited: bool = False,
        confidence: str = "",
    ) -> None:
        """Take in evidence that was first seen at ``seen`` (now) and leave a world that it
        breaks."""
        seen = self.ctx.now if seen is None else seen
        if culprit in self.released and self._somebody_leaves():
            return  # It has left the loop, or was about to: nothing is broken by that.
        self.account.add(faults.Evidence(culprit, fault, text, seen, confidence), self.committed)
        if exited or fault in ("worker_exit", "peer_lost"):
            self.asked.discard(culprit)
            self.holdings.pop(culprit, None)
        world = self.world
        if world is None or culprit not in world.members:
            return
        source = world.sources[world.members.index(culprit)]
        takes = source.startswith(("peer:", "updates:"))
        if takes and self.phase == "forming" and fault in ("state_unavailable", "hang"):
            self.trust.bench(culprit, text)
        if fault == "state_unavailable" and source == "checkpoint":
            # Who has a copy may be away: until a node comes, trying at once again helps nobody.
            self.read_again_at = self.ctx.now + self._pause(self.unread)
            self.unread += 1
        self.account.count()
        if self.phase in ("running", "forming"):
            self._enter("waiting", "a member failed")

    def _somebody_leaves(self) -> bool:
        """Whether a member of the world has left its loop, or still can."""
        world = self.world
        found = self.roster.trainers(*HOLDING, *LEFT)
        return any(world is None or node in world.members for node in found)

    # --- the next thing to do ---------------------------------------------------------------------

    def evaluate(self) -> None:
        """Go on as far as what is known allows."""
        if self.outcome is not None or self.rest is not None:
            return
        if not self._orient():
            return
        self.checkpoints.leaving = self.unwanted
        self.checkpoints.advance()
        if self.checkpoints.changed:
            self.checkpoints.changed, self.summary_due = False, True
        if self._close():
            return
        match self.phase:
            case "waiting" if self.record.paused and not self.roster.trainers(*HOLDING):
                if not self._silent():
                    generation = str(self.world.generation) if self.world is not None else ""
                    self.rest = Rest(self.newest.step if self.newest is not None else 0, generation)
            case "waiting":
                self._maybe_freeze()
            case "freezing":
                if self.asked <= self.holdings.keys():
                    self._plan()
            case "running":
                assert self.world is not None
                self.exactness.judge(self.world, self.statuses)
                self._maybe_halt()
                self._discharge()
                self._leave_disputed()

    def _maybe_halt(self) -> None:
        """Stop a job that shall be paused at a step whose checkpoint is consistent."""
        world, newest = self.world, self.newest
        assert world is not None
        if not self.record.paused:
            self.halting.lift(world, self.progress)
        elif not self.halting.reached(world, self.progress):
            self.halting.order(world, self.progress, self.spec.train.steps)
        elif newest is not None and (newest.lineage, newest.step) == (
            world.lineage,
            self.halting.step,
        ):
            self.rest = Rest(newest.step, str(world.generation))

    def _discharge(self) -> None:
        """End the trainers of nodes that no job is to run on, once the world runs without them."""
        assert self.world is not None
        for node in self.view.members:
            if node in self.world.members:
                self.discharged.discard(node)
            elif node in self.unwanted and node not in self.discharged:
                status = self.statuses.get(node)
                if status is not None and status.trainer is not None:
                    self.discharged.add(node)
                    self.ctx.send(node, Discharge(self.record.id))
        self.discharged &= self.unwanted

    def _wanted(self, nodes: list[NodeId]) -> list[NodeId]:
        return [node for node in nodes if node not in self.unwanted]

    def _enter(self, phase: str, why: str = "") -> None:
        self.phase, self.phase_since, self.why_waiting = phase, self.ctx.now, why
        self.summary_due = True

    def _pause(self, times: int) -> float:
        """Seconds before something is tried again that has failed so often: longer each time."""
        return self.ctx.timing.retry_seconds * float(2 ** min(times, _LONGEST_PAUSE))

    def _silent(self) -> list[NodeId]:
        """Members that have not said yet how they are, while it is worth waiting for them."""
        waits = self._waited() < self.ctx.timing.holding_seconds
        return self.roster.silent() if waits else []

    def _maybe_freeze(self) -> None:
        if self.ctx.now < max(self.hold_off, self.read_again_at, self.rests_until):
            return
        if silent := self._silent():
            self.why_waiting = f"waiting to hear from {', '.join(silent)}"
            return
        holding = self.roster.trainers(*HOLDING)
        able = holding + self._wanted(self.roster.trainers("ready"))
        least = self._least
        if len(able) < least:
            self.why_waiting = f"{len(able)} of at least {least} members are ready"
            self.why_waiting += self.roster.troubles()
            if self.roster.hopeless():
                self._fail(self.why_waiting)
            return
        unsettled = self.roster.unsettled()
        patience = self.ctx.timing.start_seconds
        if self._has_history():
            patience = self.ctx.timing.restore_seconds
        if not holding and unsettled and self._waited() < patience:
            self.why_waiting = f"trainers are starting on {', '.join(unsettled)}"
            return
        fit = [n for n in holding if self.trust.fit(n)]
        enough = (s for s in (fit, holding) if routing.most_in_a_ring(self.roster, s) >= least)
        self._freeze(next(enough, able))

    @property
    def _least(self) -> int:
        """The fewest members of a world. Any may end when all is done: others have ended before."""
        return 1 if self._stored_last() else self.spec.world.min

    def _stored_last(self) -> bool:
        """Whether the last step's checkpoint is consistent."""
        return self.newest is not None and self.newest.step == self.spec.train.steps

    def _waited(self) -> float:
        return self.ctx.now - self.phase_since

    def _has_history(self) -> bool:
        return self.newest is not None or self.roster.has_stored()

    def _orient(self) -> bool:
        """Find out, once, what an earlier leader left. False while members have not spoken."""
        if self.oriented:
            return True
        if silent := self._silent():
            self.why_waiting = f"waiting to hear from {', '.join(silent)}"
            return False
        self.oriented = True
        worlds = self.roster.worlds(self.world)
        if not worlds:
            return True
        world = max(worlds, key=lambda w: w.generation)
        self._take(world)
        if self.record.rested == str(world.generation) and not self.roster.trainers(
            *HOLDING, *LEFT
        ):
            self.resumed, self.committed = True, self.record.step
            self._enter("waiting", "trainers are starting to resume it")
            return True
        there = [s for s in self.statuses.values() if s.world == world]
        self.committed = max(world.step, *(s.committed for s in there))
        self.moved_at = self.ctx.now
        early, self.progress = self.progress, {}
        for node, progress in early.items():
            self.on_progress(node, progress)
        self.phase = "running"
        if self.roster.is_whole(world):
            self._enter("running")
            text = f"adopted a whole world, {world.generation}"
            self.ctx.log("info", text, job=self.record.id)
            for node in world.members:
                self.ctx.send(node, Formed(world.job, world.generation))
            self._compare_models()
        elif not self.roster.trainers(*LEFT):
            self._inherit(world)
        return True

    def _compare_models(self) -> None:
        """By what members have told of checkpoints before their world counted as running."""
        for entry in list(self.checkpoints.entries.values()):
            for node, digest in sorted(entry.models.items()):
                told = Digest(self.record.id, entry.generation, entry.step, entry.stamp, digest)
                self.on_digest(node, told)

    def _inherit(self, world: World) -> None:
        """Take over a world that its leader's loss, or another's, has broken or left unfinished."""
        self._blame_lost([n for n in world.members if n not in self.view.members])
        for node in world.members:
            if node in self.statuses:
                self._look_for_faults(node, self.statuses[node], world)
        if self.phase == "running":
            text = "its leader was lost while a world was being formed"
            self._blame(world.members[0], "ring_broken", text)

    def _take(self, world: World) -> None:
        self.world = world
        self.checkpoints.enter(world)
        self.account.adopt(world)
        self.trust.adopt(world)
        self.exactness.kept = world.exact
        self.relief.level = max(self.relief.level, world.relief)
        self.patience.enter(world)
        self.growth.enter(world)

    def _freeze(self, nodes: list[NodeId], why: str = "") -> None:
        """Stop the members to form the next world; ``why``, if nothing has failed."""
        self.serial, self.cause = self.ctx.nonce(), why
        self.growth.stopped_at = self.ctx.now
        self.asked = set(nodes)
        self.holdings = {}
        self._enter("freezing")
        for node in nodes:
            freeze = Freeze(self.view.epoch, self.record.id, self.serial, len(nodes) == 1)
            self.ctx.send(node, freeze)

    def on_holding(self, node: NodeId, holding: Holding) -> None:
        self.ctx.saw(holding.counter)
        if self.phase != "freezing" or holding.serial != self.serial:
            return
        self.holdings[node] = holding
        self.evaluate()

    # --- planning ---------------------------------------------------------------------------------

    def _plan(self) -> None:
        able = {n: h for n, h in sorted(self.holdings.items()) if h.able}
        self.compared |= able.keys()
        self.holdings = self._who_stays({n: self.trust.trusted(n, h) for n, h in able.items()})
        distrusted = any(h.point != able[n].point for n, h in self.holdings.items())
        apart = self._leave_out()
        start: Start | str = apart or self._start_point(distrusted)
        if isinstance(start, str) and not apart and distrusted and self._waited_for_restore():
            start = self._from_one(able)
        if isinstance(start, str):
            self._enter("waiting", start)
            self.hold_off = self.ctx.now + self.ctx.timing.retry_seconds
            return
        account = self.account
        before = set(self.world.members) if self.world is not None else set()
        if start.rung == "grow" and set(start.resume.members) <= before:
            start = replace(start, rung="regroup")  # some were drained
        if start.older >= 0:
            self.ctx.log("warning", "an older state has to do", newest_known=start.older)
        if mismatch := self.roster.mismatch(start.resume.members):
            self._fail(mismatch)
            return
        if times := account.tired():
            seconds = self._pause(times)
            self.rests_until = self.ctx.now + seconds
            text = f"{account.fruitless} recoveries in a row without one committed step"
            self._enter("waiting", f"{text}; the next in {seconds:g} s; {account.evidence()}")
            return
        level = self.relief.level
        relieved = self._relieve()
        outside = faults.from_outside(account.pieces) or self.unread > 0
        if account.pieces and not relieved and not outside:
            account.fruitless += 1
        if start.rung == "restore" and account.recovery is None and not self.resumed:
            account.open_restore(self.started_at, self.committed)
        account.diagnose(start.resume, self.world)
        self.histories.chosen(start, self.roster.ran(self.world))
        if relieved:
            self.relief.tell(level, relieved, self.world)
            if start.rung in ("retry", "regroup"):
                start = replace(start, rung="relieve")
        self._form(start)
        self.trust.settled()
        self.resumed = False

    def _who_stays(self, holdings: dict[NodeId, Holding]) -> dict[NodeId, Holding]:
        """Without the nodes that are drained, unless what they hold or they themselves are
        needed."""
        stay = {n: h for n, h in holdings.items() if n not in self.unwanted}
        held = any(h.point is not None and h.point.step >= self.committed for h in stay.values())
        nobody = all(h.point is None for h in holdings.values())
        enough = len(stay) >= max(1, self._least)
        return stay if enough and (held or nobody) else holdings

    def _leave_out(self) -> str:
        """Do without members that no ring can hold, since two of the others don't reach them:
        rather one that would only take a state, and was not in the world. Why that must wait, or
        nothing: too few would be left, or, for a while, nobody who holds what is committed."""
        members = self.world.members if self.world is not None else ()
        steps = {n: -1 if h.point is None else h.point.step for n, h in self.holdings.items()}
        order = sorted(steps, key=lambda n: (-steps[n], n not in members))
        without, why = routing.beyond_reach(self.roster, order, ())
        if not without:
            return ""
        rest = max(step for node, step in steps.items() if node not in without)
        if rest < min(max(steps.values()), self.committed) and not self._waited_for_restore():
            return f"only {order[0]} holds step {steps[order[0]]}: {why}"
        if (left := len(order) - len(without)) < self._least:
            return f"{left} of at least {self._least} members can be in one ring: {why}"
        for node in without:
            del self.holdings[node]
        self.ctx.log("warning", "left out of the ring", nodes=list(without), why=why)
        self.ctx.emit("link_avoided", why, self.record.id, without=list(without))
        return ""

    def _from_one(self, held: Mapping[NodeId, Holding]) -> Start | str:
        """States differ, nobody can tell whose is right, and no checkpoint comes back: all go on
        with one."""
        first = next((n for n in self.holdings if held[n].point is not None), None)
        if first is not None:
            self.holdings[first], self.exactness.kept = held[first], False
            self.ctx.emit(
                "state_chosen",
                f"states differ and no checkpoint is there to go back to: all take that of {first},"
                " which may be the wrong one",
                self.record.id,
                culprit=first,
            )
        return self._start_point(distrusted=False)

    def _start_point(self, distrusted: bool) -> Start | str:
        situation = planning.Situation(
            job=self.record.id,
            spec=self.spec,
            least=self._least,
            roster=self.roster,
            holdings=self.holdings,
            world=self.world,
            newest=self.newest,
            parents=self.checkpoints.parents,
            begun=self.checkpoints.lineages(),
            committed=self.committed,
            recovering=self.account.recovery is not None,
            distrusted=distrusted,
            waited=self._waited_for_restore(),
            nonce=self.ctx.nonce,
            noisy=self._noisy(),
            strict=self.ctx.strict,
            overtaken=self._overtaken(),
            left=self.histories.left,
            ran=self.histories.ran,
            spoilt=self.checkpoints.spoilt,
        )
        return planning.start_point(situation)

    def _noisy(self) -> str:
        left = self.ctx.quiet_at - self.ctx.now
        if left <= 0 or not self._overtaken():
            return ""
        return f"a world that is cut off may train for another {left:.0f} s, and only one may"

    def _overtaken(self) -> bool:
        """There was a newer world than any of those that members here were in."""
        if not self.ctx.strict:
            return False
        world = self.world
        if world is not None and not any(n in self.holdings for n in world.members):
            world = None  # nobody here has left it
        known = max((w.generation for w in self.roster.worlds(world)), default=NO_TAG)
        return self.ctx.heard.get(self.record.id, NO_TAG) > known

    def _relieve(self) -> str:
        """What is given up for want of memory, if that was the fault or is foreseen."""
        pieces = [piece for piece in self.account.pieces if piece.fault == "oom"]
        text = self.relief.give_up(pieces, self.committed, self.roster.least_micro())
        text = text or self.relief.give_up_in_time(self.committed)
        if text:
            # Steps take another time now.
            self.patience.forget()
            self.balance.speeds.forget()
            self.exactness.kept = self.exactness.kept and not self.relief.rounds
        return text

    def on_pressed(self, node: NodeId, told: Pressed) -> None:
        """A member foresees that its memory runs out: the whole job gives up more at the next
        step."""
        world = self.world
        if world is not None and told.generation == world.generation:
            self.relief.foreseen = f"on {node} {told.reason}"

    def _maybe_relieve(self) -> None:
        world = self.world
        if world is None or self.phase != "running" or self.account.recovery is not None:
            return
        left = self.committed < self.spec.train.steps and not self.record.paused
        warm = self.roster.warm(world.members) or len(world.members) == 1
        if self.relief.can_help and left and warm:
            self._freeze(list(world.members), "memory is to be given back")

    def _waited_for_restore(self) -> bool:
        return self.ctx.now - self.restore_since() >= self.ctx.timing.restore_seconds

    def restore_since(self) -> float:
        return self.account.recovery.since if self.account.recovery is not None else self.started_at

    # --- forming ----------------------------------------------------------------------------------

    def _writers(self, members: tuple[NodeId, ...]) -> tuple[tuple[int, ...], ...]:
        """Who writes which shard, if any member's failure domain is known."""
        domains = self.roster.domains(members)
        return placement(domains, self.spec.checkpoint.replicas) if any(domains) else ()

    def _form(self, start: Start) -> None:
        ctx, cut = self.ctx, self.relief.cut()
        resume, rung, point = start.resume, start.rung, start.resume.point
        ctx.counter += 1
        generation = Tag(ctx.counter, ctx.me, ctx.nonce())
        lost = max(0, self.committed - point.step) if rung in GOING_BACK else 0
        self.account.planned(rung, point.step, lost)
        before = self.relief.cut(self.world.relief) if self.world is not None else cut
        kept = planning.shares_kept(self.world, resume, before, cut)
        resume, hosts = routing.laid(self.roster, resume, self.holdings)
        shares_now, shares = planning.deal(
            cut, kept, resume.members, self.balance.speeds.weights(resume.members)
        )
        count = self.checkpoints.cut_of(point)
        world = World(
            job=self.record.id,
            generation=generation,
            epoch=self.view.epoch,
            lineage=point.lineage,
            parent=start.parent,
            step=point.step,
            stamp=point.stamp,
            members=resume.members,
            sources=resume.sources,
            hosts=hosts,
            shares_now=shares_now,
            shares=shares,
            rung=rung,
            reason=f"{resume.reason}; {self.cause}" if self.cause else resume.reason,
            recoveries=self.account.recoveries,
            lost_steps=self.account.lost_steps,
            exact=self.exactness.kept,
            checkpointed=point.step if self.checkpoints.covers(point) else -1,
            manifest=start.manifest,
            holders=start.holders,
            diverged=tuple(sorted(self.trust.diverged.items())),
            relief=self.relief.level,
            count=count,
            writers=() if count else self._writers(resume.members),
        )
        self.world = world
        self.progress, self.released = {}, set()
        self.exactness.judged.clear()
        self.patience.enter(world)
        self.balance.speeds.restart()
        self.growth.enter(world)
        self.checkpoints.enter(world)
        self._enter("forming")
        self.formation.begin(world, self.view)

    def on_noted(self, node: NodeId, noted: Noted) -> None:
        self.formation.on_noted(node, noted, self.view)

    def on_listening(self, node: NodeId, message: Listening) -> None:
        if self.phase == "forming":
            self.formation.on_listening(node, message)

    def on_ready(self, node: NodeId, message: Ready) -> None:
        world = self.world
        if world is None or self.phase != "forming" or not self.formation.on_ready(node, message):
            return
        for member in world.members:
            self.ctx.send(member, Formed(world.job, world.generation))
        seconds = self._waited()
        self.unread = 0
        self.committed = world.step if world.goes_back else max(self.committed, world.step)
        self.moved_at = self.ctx.now
        self._enter("running")
        self.ctx.emit(
            "world_formed",
            f"{len(world.members)} members go on from step {world.step}: {world.reason}",
            world.job,
            world.generation.counter,
            members=list(world.members),
            resume_step=world.step,
            seconds=round(seconds, 4),
            rung=world.rung,
        )
        self.histories.entered(world)
        self._recovered()
        self._compare_models()
        self.evaluate()

    # --- running ----------------------------------------------------------------------------------

    def on_progress(self, node: NodeId, progress: Progress) -> None:
        world = self.world
        if not self.oriented:
            self.progress[node] = progress  # of a world, perhaps, that we have yet to hear of
        if world is None or progress.generation != world.generation:
            return
        before = self.progress.get(node)
        if before is None or _place(before) != _place(progress):
            self.moved_at = self.ctx.now
        self.progress[node] = progress
        self.patience.saw(node, progress, self.ctx.now)
        self.balance.speeds.saw(node, progress.grain_seconds, progress.update_seconds)
        if progress.loss is not None:
            self.loss = progress.loss
        if progress.committed > self.committed:
            self.committed = progress.committed
            if self.phase == "running":
                self._recovered()
                # At a step boundary all members hold the same state, and nobody has to take it.
                self._maybe_grow()
                self._look_at_speeds()
                self._maybe_relieve()
        if self.record.paused and self.phase == "running":
            self.evaluate()
        self.summary_due = True

    def on_digest(self, node: NodeId, told: Digest) -> None:
        """Compare the members' parameters once all have told of the same step."""
        world = self.world
        if world is None or told.generation != world.generation or self.phase != "running":
            return
        found = self.trust.compare(node, told, world)
        if found is None:
            return
        if not found.majority:
            self.checkpoints.spoil(world.lineage, told.step)
        for culprit in found.odd or world.members:
            self._blame(culprit, "divergence", found.reason)
        for node in found.odd:
            self.trust.quarantine(node)
        self.evaluate()

    def _leave_disputed(self) -> None:
        """Go back if a disk has the job's last state otherwise than all members: it takes no second
        one of that name, and nobody can complete what it has."""
        world = self.world
        assert world is not None
        disputed = self.newest is not None and self.checkpoints.disputed(self.spec.train.steps)
        if disputed and self.trust.rollback < world.generation:
            self.trust.rollback = world.generation
            text = (
                f"parameters differ after step {self.committed} from what a disk has, no majority"
            )
            for node in world.members:
                self._blame(node, "divergence", text)

    def on_rechecked(self, node: NodeId, told: Rechecked) -> None:
        """A grain that several have computed. The step goes on: its bits are everybody's by now."""
        world, spec = self.world, self.spec
        if world is None or told.generation != world.generation or self.phase != "running":
            return
        shares = world.shares_now if told.step == world.step + 1 else world.shares
        every = spec.recovery.recheck_every
        check = recheck.choose(spec.train.seed, told.step, every, shares)
        # Where grains don't repeat, different bits say nothing.
        if check is None or not self.exactness.kept:
            return
        found = self.trust.recheck(node, told, world, check)
        if found is None:
            return
        if found.odd is None:
            self.ctx.emit("recheck_differs", found.reason, world.job, world.generation.counter)
            return
        self.account.tell(found.odd, "divergence", found.reason, world)
        self.trust.quarantine(found.odd)
        fit = [n for n in world.members if self.trust.fit(n)]
        if len(fit) < len(world.members) and len(fit) >= max(1, spec.world.min):
            self._freeze(fit, f"{found.odd} has computed wrongly")

    def _recovered(self) -> None:
        """Close the recovery once a step is committed in the new world (or none is left to do)."""
        world = self.world
        if world is not None and (
            self.committed > world.step or self.committed >= self.spec.train.steps
        ):
            self.account.close(world, self.committed)
            self.growth.entered(world)

    def _maybe_grow(self) -> None:
        world = self.world
        if world is None or self.account.recovery is not None or self.committed <= world.step:
            return
        if self.committed >= self.spec.train.steps or self.record.paused:
            return
        staying = self._wanted(list(world.members))
        if len(world.members) > len(staying) >= max(1, self.spec.world.min):
            if self.roster.warm(staying) or len(staying) == 1:
                leaving = ", ".join(n for n in world.members if n not in staying)
                self._freeze(list(world.members), f"{leaving} is to be left out")
            return
        able = [
            n
            for n in self._wanted(self.roster.trainers("ready", "active"))
            if n not in world.members and self.trust.fit(n)
        ]
        cut_off, _ = routing.beyond_reach(self.roster, world.members, able)
        able = [n for n in able if n not in cut_off]
        most = self.spec.world.max or len(self.view.members)
        room = able[: max(0, most - len(world.members))]
        # Who holds a state of its own, of another side's world, has to be compared with us.
        holding = self.roster.trainers("active")
        strangers = [n for n in able if n in holding and (n in room or n not in self.compared)]
        fresh = [n for n in room if n not in holding]
        entering = strangers or self.growth.ready(fresh, self.progress, self.spec.train.steps)
        if entering and self.roster.warm((*world.members, *entering)):
            self._freeze([*world.members, *entering], f"{', '.join(entering)} may enter")
        elif routing.detours(self.roster, world) and self.roster.warm(world.members):
            self._freeze(list(world.members), "a link is back, and the ring takes it again")

    def _look_at_speeds(self) -> None:
        world = self.world
        if world is None or self.phase != "running" or self.account.recovery is not None:
            return
        if self.committed <= world.step or self.record.paused:
            return
        warm = self.roster.warm(world.members)
        grains = self.relief.cut(world.relief).grains
        if members := self.balance.look(world, grains, self.committed, warm):
            slow = len(members) < len(world.members)
            why = "a slow member is to be left out" if slow else "shares are to follow speeds"
            self._freeze(members, why)

    def on_lent(self, node: NodeId, lent: Lent) -> None:
        self.growth.on_lent(node, lent)
        if lent.never and self.world is not None:
            # What they hold lacks what the script did between steps.
            self.trust.taint(self.growth.newcomers, self.world)

    def on_prepared(self, node: NodeId, prepared: Prepared) -> None:
        self.growth.on_prepared(node, prepared)

    def _close(self) -> bool:
        """Let the members leave once the last step's checkpoint is consistent. True at the end."""
        newest = self.newest
        if newest is None or not self._stored_last():
            return False
        world = self.world
        # In another phase they are being asked, or told, to enter the next world.
        for node in self.roster.trainers("finished") if self.phase == "running" else ():
            if node not in self.released and self.roster.is_here(node, world):
                self.released.add(node)
                self.ctx.send(node, Release(self.record.id, newest.generation))
        same = world is not None and world.lineage == newest.lineage
        training = [
            n
            for n in self.roster.trainers("active")
            if world is not None and same and n in world.members
        ]
        left = self.roster.trainers("done") and not self.roster.trainers("finished", "released")
        if not left or training or self._silent():
            return False
        self.outcome = ("finished", "")
        return True

    def _fail(self, reason: str) -> None:
        if self.outcome is None:
            self.outcome = ("failed", reason)

    # --- checkpoints ------------------------------------------------------------------------------

    def on_shards(self, node: NodeId, written: ShardsWritten) -> None:
        if node in self.view.members:
            self.checkpoints.on_shards(node, written)
            if (told := written.own()) is not None:
                self.on_digest(node, told)
            self.evaluate()

    def on_shards_failed(self, node: NodeId, failed: ShardsFailed) -> None:
        if node in self.view.members:
            self.checkpoints.on_failed(node, failed)
            self.evaluate()

    def on_manifest_stored(self, node: NodeId, stored: ManifestStored) -> None:
        if node in self.view.members:
            self.checkpoints.on_stored(node, stored)
            self.evaluate()

    # --- time -------------------------------------------------------------------------------------

    def tick(self) -> None:
        now, timing = self.ctx.now, self.ctx.timing
        waited = now - self.phase_since
        if self.phase == "freezing" and waited >= 3 * timing.holding_seconds:
            for node in sorted(self.asked - self.holdings.keys()):
                self.asked.discard(node)
                self._blame(node, "hang", f"{node} did not say what it holds for {waited:.0f} s")
        if self.phase == "forming" and now >= self.phase_since + self.formation.seconds():
            late = self.formation.late()
            self._blame(
                late[0], "hang", f"the world did not form in {waited:.0f} s; waiting for {late}"
            )
        if self.phase == "running" and self._reduction_hangs():
            assert self.world is not None
            step, seconds = self.committed + 1, self._reduce_seconds()
            text = f"every member delivered step {step}, nothing moved for {seconds:.1f} s"
            # Which of them keeps the ring from moving, nobody knows.
            self._blame(self.world.members[0], "hang", text, confidence="possible")
        if self.phase == "running" and self.world is not None:
            self._hurry(self.world)
            for node in self.growth.overdue():
                self.trust.bench(node, "it was prepared for too long")
        self.evaluate()

    def _hurry(self, world: World) -> None:
        """Have trainers ended that stay in a phase for too long; who waits for them is not late."""
        for late in self.patience.late(self.ctx.now, world.generation):
            why = (
                f"its trainer was in phase {late.phase} of step {late.step} for"
                f" {late.seconds:.1f} s; {late.limit_seconds:.1f} s are allowed"
            )
            hung = Hung(self.record.id, world.generation, why, late.seconds)
            self.ctx.send(late.node, hung)

    def _reduce_seconds(self) -> float:
        return self.patience.reduce_limit(self.ctx.timing.hang_seconds)

    def _reduction_hangs(self) -> bool:
        world = self.world
        if world is None or len(world.members) < 2 or self.committed >= self.spec.train.steps:
            return False
        phases = [p.phase for n, p in self.progress.items()]
        stuck = len(phases) == len(world.members) and all(phase == "reduce" for phase in phases)
        return stuck and self.ctx.now - self.moved_at >= self._reduce_seconds()

    def deadlines(self) -> list[float]:
        timing, since = self.ctx.timing, self.phase_since
        times = [self.hold_off, self.read_again_at, self.rests_until, *self.checkpoints.deadlines()]
        match self.phase:
            case "waiting":
                times += [
                    since + t
                    for t in (timing.holding_seconds, timing.start_seconds, timing.restore_seconds)
                ]
                times.append(self.restore_since() + timing.restore_seconds)
            case "freezing":
                times.append(since + 3 * timing.holding_seconds)
            case "forming":
                times.append(since + self.formation.seconds())
            case "running":
                times.append(self.moved_at + self._reduce_seconds())
                times += self.patience.deadlines()
                times += [*self.trust.benched.values(), *self.growth.deadlines()]
        if self.summary_due:
            times.append(self.summary_at + timing.summary_seconds)
        return times

    # --- what the user sees -----------------------------------------------------------------------

    def state(self) -> str:
        if self.phase == "running":
            return "running"
        if self.world is None and self.account.recovery is None:
            return "parked" if self._short() else "running"
        rests = self._short() or self.ctx.now < self.rests_until
        return "parked" if self.phase == "waiting" and rests else "recovering"

    def _short(self) -> bool:
        able = self.roster.trainers("active", "finished", "ready", "starting")
        return len(self.view.members) < self._least or (
            len(able) < self._least and self._waited() > self.ctx.timing.holding_seconds
        )

    def maybe_summarise(self) -> None:
        if not self.summary_due or self.ctx.now < self.summary_at + self.ctx.timing.summary_seconds:
            return
        self.summary_due, self.summary_at = False, self.ctx.now
        self._tell_if_parked()
        told = Summary(self.record.id, self.summary())
        for node in self.view.members:
            self.ctx.send(node, told)

    def _tell_if_parked(self) -> None:
        parked = self.state() == "parked" and self.outcome is None and self.rest is None
        if parked and not self.parked:
            why = self.why_waiting or f"fewer than {self.spec.world.min} members are there"
            self.ctx.emit("job_parked", why, self.record.id)
        self.parked = parked

    def summary(self) -> dict[str, Any]:
        world, newest = self.world, self.newest
        state = self.state()
        ranks = []
        if world is not None and self.phase == "running":
            ranks = summary.ranks(world, self.committed, self.statuses, self.progress)
        speeds = [p.steps_per_second for p in self.progress.values() if p.steps_per_second > 0]
        traffic = [p.metrics.get("bytes_per_step", 0) for p in self.progress.values()]
        return {
            "state": state,
            "reason": self.why_waiting or None if state != "running" else None,
            "generation": world.generation.counter if world is not None else 0,
            "step": self.committed,
            "loss": self.loss if self.committed else None,
            "steps_per_second": round(min(speeds), 3) if speeds else 0.0,
            "recoveries": self.account.recoveries,
            "lost_steps": self.account.lost_steps,
            "exact": self.exactness.kept and not self.exactness.fast,
            "bytes_per_step": max(traffic, default=0),
            "digest": newest.digest if newest is not None and self.committed else None,
            "digest_step": newest.step if newest is not None and self.committed else None,
            "quarantined": list(self.trust.quarantined),
            "ranks": ranks,
        }


def _place(progress: Progress) -> tuple[str, int, int]:
    return progress.phase, progress.step, progress.committed
