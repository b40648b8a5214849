"""The leader's part in one job: forms its worlds, notices faults, recovers, lets members in, ends
it.

Rebuilt from what the members report whenever a leader is elected; nothing here has to survive.

    waiting ──enough trainers──▶ freezing ──all have answered──▶ forming ──all ready──▶ running
       ▲                            ▲  ▲                            │                      │
       │                            │  └────────── a fault ─────────┘                      │
       └──── fewer than world.min ──┴─────────── a fault, or a trainer that may enter ─────┘
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

from elasticd.checkpoints import choose
from elasticd.checkpoints.layout import placement
from elasticd.checkpoints.manifest import Manifest
from elasticd.core.checkpointing import Checkpoints
from elasticd.core.context import Context
from elasticd.core.messages import (
    GOING_BACK,
    Continue,
    Digest,
    Fault,
    Form,
    Formed,
    Freeze,
    Go,
    Holding,
    Hung,
    JobRecord,
    JobState,
    Listening,
    ManifestStored,
    MemberStatus,
    Progress,
    Ready,
    Release,
    ShardsWritten,
    Summary,
    Verdict,
    View,
    World,
)
from elasticd.core.patience import Patience
from elasticd.job import JobSpec
from elasticd.recovery import divergence, faults, regroup, restore
from elasticd.recovery import relief as levels
from elasticd.recovery.poison import Deaths
from elasticd.types import Lineage, NodeId, Point, Tag, first_stamp

_FRUITLESS_LIMIT = 8
"""This many recoveries without one committed step between them, and the job fails with its
evidence."""

_DIVERGENCES = 2
_DEARER = ("", "start", "grow", "retry", "regroup", "relieve", "rescue", "restore")
_HOLDING = ("active", "finished")
"""Phases of trainers that hold a state, or are about to."""
_LEFT = ("released", "done")


@dataclass(slots=True)
class Recovery:
    """From the first evidence to the next committed step."""

    since: float
    detected: float
    before: int
    pieces: list[faults.Evidence] = field(default_factory=list)
    counted: bool = False
    rung: str = ""
    """The dearest one of the worlds that it took."""
    lost: int = 0

    def climb(self, rung: str, step: int) -> None:
        """A world was planned for it that starts from ``step``."""
        self.rung = max(self.rung, rung, key=_DEARER.index)
        self.lost = max(self.lost, self.before - step)


@dataclass(frozen=True, slots=True)
class Start:
    """What a world starts from."""

    resume: restore.Resume
    rung: str
    parent: Point | None = None
    manifest: Manifest | None = None
    holders: tuple[tuple[NodeId, ...], ...] = ()


@dataclass(slots=True)
class Driver:
    ctx: Context
    record: JobRecord
    spec: JobSpec
    view: View
    checkpoints: Checkpoints
    patience: Patience
    phase: str = "waiting"
    phase_since: float = 0.0
    started_at: float = 0.0
    why_waiting: str = "trainers are starting"
    hold_off: float = 0.0
    """Before this time nothing can have changed that made the last plan impossible."""
    oriented: bool = False
    """We know what world the members are in, which an earlier leader may have formed."""
    statuses: dict[NodeId, MemberStatus] = field(default_factory=dict)
    world: World | None = None
    serial: str = ""
    asked: set[NodeId] = field(default_factory=set)
    holdings: dict[NodeId, Holding] = field(default_factory=dict)
    listening: set[NodeId] = field(default_factory=set)
    ready: set[NodeId] = field(default_factory=set)
    progress: dict[NodeId, Progress] = field(default_factory=dict)
    committed: int = 0
    moved_at: float = 0.0
    """When a member last delivered, applied or committed something."""
    loss: float | None = None
    recovery: Recovery | None = None
    recoveries: int = 0
    lost_steps: int = 0
    fruitless: int = 0
    furthest: int = 0
    """The newest step that was ever committed: doing again what a restore lost is no progress."""
    exact: bool = True
    relief: int = 0
    """The level of relief that the next world is formed with."""
    deaths: Deaths = field(default_factory=Deaths)
    digests: dict[NodeId, Digest] = field(default_factory=dict)
    tainted: set[NodeId] = field(default_factory=set)
    """Members whose state differs from the majority's: they take another's."""
    diverged: dict[NodeId, int] = field(default_factory=dict)
    """How often each node was the odd one out."""
    rollback: bool = False
    """No state that is held can be trusted: the next world starts from a checkpoint."""
    not_finite: dict[int, set[Tag]] = field(default_factory=dict)
    """By step, the generations in which its loss was not finite."""
    benched: dict[NodeId, float] = field(default_factory=dict)
    """Newcomers that could not take the state, and until when they are left out."""
    judged: set[NodeId] = field(default_factory=set)
    released: set[NodeId] = field(default_factory=set)
    outcome: tuple[JobState, str] | None = None
    """(state, reason) once the job has ended; the node writes it into the job's record."""
    summary_at: float = 0.0
    summary_due: bool = True

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
            self.checkpoints.learn({n: s.stored for n, s in self.statuses.items()})
        self.checkpoints.domains[node] = status.domain
        self.summary_due, self.hold_off = True, 0.0
        if status.fatal:
            self._fail(status.fatal)
        world = self.world
        if world is not None and status.world is not None:
            if status.world.generation == world.generation:
                self.committed = max(self.committed, status.committed)
            elif status.world.generation > world.generation and self.phase == "waiting":
                # The other side of a partition went on while we waited.
                self.oriented = False
        if self.phase == "running" and world is not None and node in world.members:
            self._look_for_faults(node, status, world)
        self.evaluate()

    def _look_for_faults(self, node: NodeId, status: MemberStatus, world: World) -> None:
        """What a member's status says against it, if word of it was lost with a connection or
        leader."""
        phase = status.trainer.phase if status.trainer is not None else ""
        if status.ready or phase in _LEFT:
            return
        here = status.world is not None and status.world.generation == world.generation
        for fault, text in status.faults if here else ():
            self._blame(node, fault, text)
        if not status.faults and phase not in _HOLDING:
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
        if stale and not exited:
            return
        self._count(fault)
        seen = self.ctx.now - fault.age_seconds
        self._blame(fault.culprit, fault.fault, fault.evidence, seen, exited)
        self.evaluate()

    def _count(self, fault: Fault) -> None:
        """Faults that come back with the same step are no bad luck."""
        step = self.committed + 1
        if fault.status is not None and fault.fault == "worker_exit":
            self.deaths.took(fault.culprit, fault.status, step)
            members = self.world.members if self.world is not None else self.view.members
            if poisoned := self.deaths.verdict(members):
                self._fail(f"{poisoned}; {fault.evidence}")
        if fault.fault == "not_finite":
            self.rollback = True
            seen = self.not_finite.setdefault(step, set())
            seen.add(fault.generation)
            if len(seen) > 1:
                self._fail(f"{fault.evidence}, again after a restore: the same data does it")

    def on_view(self, view: View, reborn: tuple[NodeId, ...]) -> None:
        """A new view under the same leader: what was asked in the old one is void.

        ``reborn`` are members whose daemon was started again.
        """
        lost = [n for n in self.view.members if n not in view.members]
        self.view = view
        self.checkpoints.on_view(view, (*lost, *reborn))
        self.statuses.clear()
        self.judged, self.released, self.hold_off = set(), set(), 0.0
        if self.phase == "freezing":
            self._enter("waiting", "the view changed")
        self._blame_lost(lost)
        for node in reborn:
            if self.world is not None and node in self.world.members:
                self._blame(node, "peer_lost", f"{node} was started again")
        if self.phase == "forming":
            # An order or an answer may have been lost with a connection.
            self._enter("waiting", "the view changed while the world formed")
        self.evaluate()

    def _blame_lost(self, nodes: list[NodeId]) -> None:
        for node in nodes:
            if self.world is not None and node in self.world.members:
                seen = self.ctx.lost.get(node, self.ctx.now)
                self._blame(node, "peer_lost", f"{node} left the view", seen)

    def _blame(
        self,
        culprit: NodeId,
        fault: str,
        text: str,
        seen: float | None = None,
        exited: bool = False,
    ) -> None:
        """Take in evidence that was first seen at ``seen`` (now) and leave a world that it
        breaks."""
        now = self.ctx.now
        seen = now if seen is None else seen
        if culprit in self.released and self._trainers(*_HOLDING, *_LEFT):
            return  # It has left the loop, or was about to: nothing is broken by that.
        if self.recovery is None:
            self.recovery = Recovery(since=seen, detected=now, before=self.committed)
        recovery, world = self.recovery, self.world
        recovery.since = min(recovery.since, seen)
        recovery.pieces.append(faults.Evidence(culprit, fault, text, seen))
        if exited or fault in ("worker_exit", "peer_lost"):
            self.asked.discard(culprit)
            self.holdings.pop(culprit, None)
        if world is None or culprit not in world.members:
            return
        takes = world.sources[world.members.index(culprit)].startswith("peer:")
        if takes and self.phase == "forming" and fault in ("state_unavailable", "hang"):
            self.benched[culprit] = now + self.ctx.timing.bench_seconds
        if not recovery.counted:
            recovery.counted = True
            self.recoveries += 1
        if self.phase in ("running", "forming"):
            self._enter("waiting", "a member failed")

    # --- the next thing to do ---------------------------------------------------------------------

    def evaluate(self) -> None:
        """Go on as far as what is known allows."""
        if self.outcome is not None:
            return
        self.checkpoints.advance()
        if self.checkpoints.changed:
            self.checkpoints.changed, self.summary_due = False, True
        if not self._orient() or self._close():
            return
        match self.phase:
            case "waiting":
                self._maybe_freeze()
            case "freezing":
                if self.asked <= self.holdings.keys():
                    self._plan()
            case "running":
                self._judge()

    def _enter(self, phase: str, why: str = "") -> None:
        self.phase, self.phase_since, self.why_waiting = phase, self.ctx.now, why
        self.summary_due = True

    def _trainers(self, *phases: str) -> list[NodeId]:
        found = ((n, self.statuses.get(n)) for n in self.view.members)
        return [n for n, s in found if s and s.trainer and s.trainer.phase in phases]

    def _unsettled(self) -> list[NodeId]:
        """Members whose trainer may still come up."""
        result = []
        for node in self.view.members:
            status = self.statuses.get(node)
            if (
                status is None
                or (not status.trouble and status.trainer is None)
                or (status.trainer is not None and status.trainer.phase == "starting")
            ):
                result.append(node)
        return result

    def _silent(self) -> list[NodeId]:
        """Members that have not said yet how they are."""
        if self._waited() >= self.ctx.timing.holding_seconds:
            return []
        return [n for n in self.view.members if n not in self.statuses]

    def _maybe_freeze(self) -> None:
        if self.ctx.now < self.hold_off:
            return
        if silent := self._silent():
            self.why_waiting = f"waiting to hear from {', '.join(silent)}"
            return
        holding = self._trainers(*_HOLDING)
        able = holding + self._trainers("ready")
        least = self.spec.world.min
        if len(able) < least:
            self.why_waiting = f"{len(able)} of at least {least} members are ready"
            self.why_waiting += self._troubles()
            statuses = [self.statuses.get(n) for n in self.view.members]
            if all(s is not None and s.hopeless for s in statuses):
                self._fail(self.why_waiting)
            return
        unsettled = self._unsettled()
        patience = self.ctx.timing.start_seconds
        if self._has_history():
            patience = self.ctx.timing.restore_seconds
        if not holding and unsettled and self._waited() < patience:
            self.why_waiting = f"trainers are starting on {', '.join(unsettled)}"
            return
        fit = [n for n in holding if self.benched.get(n, 0.0) <= self.ctx.now]
        self._freeze(next(s for s in (fit, holding, able) if len(s) >= least))

    def _troubles(self) -> str:
        texts = [f"{n}: {s.trouble}" for n, s in sorted(self.statuses.items()) if s.trouble]
        return "; " + "; ".join(texts) if texts else ""

    def _waited(self) -> float:
        return self.ctx.now - self.phase_since

    def _has_history(self) -> bool:
        return self.newest is not None or any(s.stored for s in self.statuses.values())

    def _orient(self) -> bool:
        """Find out, once, what an earlier leader left. False while members have not spoken."""
        if self.oriented:
            return True
        if silent := self._silent():
            self.why_waiting = f"waiting to hear from {', '.join(silent)}"
            return False
        self.oriented = True
        worlds = self._known_worlds()
        if not worlds:
            return True
        world = max(worlds, key=lambda w: w.generation)
        self._take(world)
        there = [s for s in self.statuses.values() if s.world == world]
        self.committed = max(world.step, *(s.committed for s in there))
        self.moved_at = self.ctx.now
        early, self.progress = self.progress, {}
        for node, progress in early.items():
            self.on_progress(node, progress)
        self.phase = "running"
        if all(self._whole(node, world) for node in world.members):
            self._enter("running")
            text = f"adopted a whole world, {world.generation}"
            self.ctx.log("info", text, job=self.record.id)
            for node in world.members:
                self.ctx.send(node, Formed(world.job, world.generation))
        elif not self._trainers(*_LEFT):
            self._inherit(world)
        return True

    def _is_here(self, node: NodeId) -> bool:
        """Whether what a node last said is of the present world, if it is a member."""
        status, world = self.statuses[node], self.world
        if world is None or node not in world.members:
            return True
        return status.world is not None and status.world.generation == world.generation

    def _whole(self, node: NodeId, world: World) -> bool:
        status = self.statuses.get(node)
        return (
            status is not None
            and status.ready
            and status.world is not None
            and status.world.generation == world.generation
        )

    def _inherit(self, world: World) -> None:
        """Take over a world that its leader's loss, or another's, has broken or left unfinished."""
        self._blame_lost([n for n in world.members if n not in self.view.members])
        for node in world.members:
            if node in self.statuses:
                self._look_for_faults(node, self.statuses[node], world)
        if self.phase == "running":
            text = "its leader was lost while a world was being formed"
            self._blame(world.members[0], "ring_broken", text)

    def _known_worlds(self) -> list[World]:
        worlds = [s.world for s in self.statuses.values() if s.world is not None]
        return worlds if self.world is None else [*worlds, self.world]

    def _last_run(self, lineage: Lineage) -> World | None:
        """The newest world of a lineage that may have taken a step: no member is known not to be
        in it."""
        for world in sorted(self._known_worlds(), key=lambda w: w.generation, reverse=True):
            states = [self.statuses[n].world for n in world.members if n in self.statuses]
            entered = all(w is not None and w.generation >= world.generation for w in states)
            if world.lineage == lineage and entered:
                return world
        return None

    def _take(self, world: World) -> None:
        self.world = world
        self.checkpoints.enter(world)
        self.recoveries = max(self.recoveries, world.recoveries)
        self.lost_steps = max(self.lost_steps, world.lost_steps)
        self.exact = world.exact
        self.relief = max(self.relief, world.relief)
        self.patience.enter(world)

    def _freeze(self, nodes: list[NodeId]) -> None:
        self.serial = self.ctx.nonce()
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
        self.holdings = {n: self._trusted(n, h) for n, h in sorted(self.holdings.items()) if h.able}
        start = self._start_point()
        if isinstance(start, str):
            self._enter("waiting", start)
            self.hold_off = self.ctx.now + self.ctx.timing.retry_seconds
            return
        mismatch = self._fingerprints(start.resume.members)
        if mismatch:
            self._fail(mismatch)
            return
        if self.fruitless > _FRUITLESS_LIMIT:
            text = f"{self.fruitless} recoveries in a row without one committed step"
            self._fail(f"{text}; {self._evidence()}")
            return
        pieces = self.recovery.pieces if self.recovery is not None else []
        relieved = self._relieve(any(piece.fault == "oom" for piece in pieces))
        if not relieved and any(piece.fault != "peer_lost" for piece in pieces):
            self.fruitless += 1
        if start.rung == "restore" and self.recovery is None:
            self.recovery = Recovery(self.started_at, self.started_at, self.committed, counted=True)
            self.recoveries += 1
        self._diagnose(start.resume)
        if relieved:
            self._tell_of_relief()
            if start.rung in ("retry", "regroup"):
                start = replace(start, rung="relieve")
        self._form(start)
        self.tainted, self.rollback = set(), False

    def _trusted(self, node: NodeId, holding: Holding) -> Holding:
        return replace(holding, point=None) if self.rollback or node in self.tainted else holding

    def cut(self, level: int) -> levels.Cut:
        """The grains of a global batch at a level of relief."""
        return levels.cut(self.spec.batch.global_, self.spec.batch.micro, level)

    def _relieve(self, short: bool) -> bool:
        """Memory was short: give up one thing more, if there is one."""
        batch = self.spec.batch
        if not short or self.relief >= levels.last_level(batch.global_, batch.micro, self._least()):
            return False
        self.relief += 1
        self.patience.forget()
        if self.relief > levels.RECOMPUTE_LEVEL:
            self.exact = False
        return True

    def _least(self) -> int:
        """How few samples a grain of this model may have, as its trainers say."""
        prints = [s.trainer.fingerprint for s in self.statuses.values() if s.trainer is not None]
        return max((int(p.get(levels.LEAST_MICRO, 1)) for p in prints), default=1)

    def _tell_of_relief(self) -> None:
        batch, level = self.spec.batch, self.relief
        text = levels.describe(batch.global_, batch.micro, level)
        generation = self.world.generation.counter if self.world is not None else None
        if level <= levels.RECOMPUTE_LEVEL:
            self.ctx.emit("memory_relieved", text, self.record.id, generation, level=level)
            return
        self.ctx.emit(
            "batch_shrunk",
            text,
            self.record.id,
            generation,
            micro_before=self.cut(level - 1).micro,
            micro_after=self.cut(level).micro,
            global_batch=batch.global_,
            level=level,
        )

    def _start_point(self) -> Start | str:
        """What the next world starts from, or why none can start now."""
        if len(self.holdings) < self.spec.world.min:
            return f"{len(self.holdings)} of at least {self.spec.world.min} members are ready"
        held = {n: restore.Held(h.point, h.entered) for n, h in self.holdings.items()}
        best = restore.best_held(held)
        at = best.point.step if best is not None and best.point is not None else -1
        choice = self._newest_within_reach()
        reach = choice.manifest.step if choice is not None else -1
        known = self._newest_in_line()
        if max(at, reach) < known:
            if max(at, reach) < 0 or not self._waited_for_restore():
                return f"shards of checkpoint {known} are on nodes that are away"
            self.ctx.log("warning", "an older state has to do", newest_known=known)
        if best is not None and at >= reach:
            return self._from_survivors(best)
        if choice is None and self.rollback:
            return "there is no checkpoint to go back to"
        members = tuple(sorted(self.holdings))
        if self.spec.world.max:
            members = members[: self.spec.world.max]
        if choice is not None:
            return self._from_checkpoint(choice, members)
        lineage = Lineage(self.ctx.nonce())
        point = Point(lineage, 0, first_stamp(self.record.id, lineage))
        sources = ("init", *(f"peer:{members[0]}" for _ in members[1:]))
        return Start(restore.Resume(point, members, sources, "the job starts"), "start")

    def _newest_in_line(self) -> int:
        """The step of the newest known checkpoint; -1 if what is trained now began before it."""
        newest, worlds = self.newest, self._known_worlds()
        if newest is None:
            return -1
        parent = max(worlds, key=lambda w: w.generation).parent if worlds else None
        if parent is not None and newest.lineage == parent.lineage and newest.step > parent.step:
            return -1
        return newest.step

    def _newest_within_reach(self) -> choose.Choice | None:
        """The checkpoint to restore: of the lineage that was last trained, if it has any."""
        stored = {n: s.stored for n, s in self.statuses.items()}
        worlds = self._known_worlds()
        if worlds:
            last = max(worlds, key=lambda w: w.generation)
            found = choose.newest(stored, last.lineage, last.parent)
            if found is not None:
                return found
        return choose.newest(stored)

    def _from_survivors(self, best: restore.Held) -> Start:
        assert best.point is not None
        previous = self.world.members if self.world is not None else ()
        points = {n: h.point for n, h in self.holdings.items()}
        limit = self.spec.world.max
        resume = restore.from_survivors(points, best.point, previous, limit)
        rung = "regroup" if self._somebody_left() else "retry"
        if self.recovery is None:
            rung = "grow"
        if best.point.step < self.committed:
            rung = "rescue"  # who holds it was in none of the worlds that went on
        lineage = best.point.lineage
        last = self._last_run(lineage)
        if (
            last is not None
            and best.entered == last.generation
            and restore.keeps_lineage(last.members, self.view.members)
        ):
            return Start(resume, rung, self._parent_of(lineage))
        # Others of that world may go on without us: we do so under a name of our own.
        parent = best.point if self._has_checkpoints(lineage) else self._parent_of(lineage)
        point = replace(best.point, lineage=Lineage(self.ctx.nonce()))
        return Start(replace(resume, point=point), rung, parent)

    def _has_checkpoints(self, lineage: Lineage) -> bool:
        manifests = [i.manifest for s in self.statuses.values() for i in s.stored]
        return any(manifest.lineage == lineage for manifest in manifests)

    def _from_checkpoint(self, choice: choose.Choice, members: tuple[NodeId, ...]) -> Start:
        manifest = choice.manifest
        point = Point(Lineage(self.ctx.nonce()), manifest.step, manifest.stamp)
        reason = f"no living trainer holds a newer state; {choice.reason}"
        resume = restore.Resume(point, members, ("checkpoint",) * len(members), reason)
        return Start(resume, "restore", manifest.point, manifest, choice.sources)

    def _waited_for_restore(self) -> bool:
        return self.ctx.now - self.restore_since() >= self.ctx.timing.restore_seconds

    def restore_since(self) -> float:
        return self.recovery.since if self.recovery is not None else self.started_at

    def _parent_of(self, lineage: Lineage) -> Point | None:
        """Where a lineage was opened."""
        found = (w.parent for w in self._known_worlds() if w.lineage == lineage)
        return next(found, self.checkpoints.parents.get(lineage))

    def _somebody_left(self) -> bool:
        """Whether a member of the last world holds nothing any more."""
        members = self.world.members if self.world is not None else ()
        return any((h := self.holdings.get(n)) is None or h.point is None for n in members)

    def _fingerprints(self, members: tuple[NodeId, ...]) -> str:
        """What differs between the trainers of two members, or nothing."""
        prints = {
            n: s.trainer.fingerprint
            for n in members
            if (s := self.statuses.get(n)) is not None
            and s.trainer is not None
            and s.trainer.fingerprint
        }
        if not prints:
            return ""
        first = next(iter(prints))
        for node, own in prints.items():
            for key in sorted(own.keys() | prints[first].keys()):
                mine, theirs = prints[first].get(key, "missing"), own.get(key, "missing")
                if mine != theirs:
                    return (
                        f"{key} is {mine} on {first} and {theirs} on {node}: "
                        "every rank must build the same model and data"
                    )
        return ""

    def _evidence(self) -> str:
        pieces = self.recovery.pieces if self.recovery is not None else []
        return "; ".join(f"{p.culprit}: {p.text}" for p in pieces[-4:])

    def _diagnose(self, resume: restore.Resume) -> None:
        recovery = self.recovery
        if recovery is None or not recovery.pieces:
            return
        ranks = self.world.members if self.world is not None else ()
        generation = self.world.generation.counter if self.world is not None else None
        for found in faults.classify(recovery.pieces):
            rank = ranks.index(found.culprit) if found.culprit in ranks else None
            seen = min(p.seen_seconds for p in recovery.pieces)
            self.ctx.emit(
                "fault_detected",
                f"{found.fault} on {found.culprit}: {found.evidence[0]}",
                self.record.id,
                generation,
                fault=found.fault,
                rank=rank,
                culprit=found.culprit,
                evidence=list(found.evidence),
                seconds_to_detect=round(max(0.0, recovery.detected - seen), 4),
            )
        self.ctx.emit(
            "recovery_started",
            resume.reason,
            self.record.id,
            generation,
            resume_step=resume.point.step,
        )
        recovery.pieces.clear()

    # --- forming ----------------------------------------------------------------------------------

    def _writers(self, members: tuple[NodeId, ...]) -> tuple[tuple[int, ...], ...]:
        """Who writes which shard, if any member's failure domain is known."""
        domains = [s.domain if (s := self.statuses.get(n)) is not None else "" for n in members]
        return placement(domains, self.spec.checkpoint.replicas) if any(domains) else ()

    def _form(self, start: Start) -> None:
        ctx, grains = self.ctx, self.cut(self.relief).grains
        resume, rung, point = start.resume, start.rung, start.resume.point
        previous = self.world
        ctx.counter += 1
        generation = Tag(ctx.counter, ctx.me, ctx.nonce())
        lost = max(0, self.committed - point.step) if rung in GOING_BACK else 0
        self.lost_steps += lost
        if self.recovery is not None:
            self.recovery.climb(rung, point.step)
        kept = {}
        if (
            previous is not None
            and point.lineage == previous.lineage
            and self.cut(previous.relief) == self.cut(self.relief)
        ):
            now = previous.shares_now if previous.step == point.step else previous.shares
            kept = {
                n: now[rank]
                for rank, n in enumerate(previous.members)
                if n in resume.members and resume.sources[resume.members.index(n)] == "keep"
            }
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
            hosts=tuple(self.holdings[n].host for n in resume.members),
            shares_now=regroup.reshare(grains, kept, resume.members),
            shares=regroup.shares(grains, len(resume.members)),
            rung=rung,
            reason=resume.reason,
            recoveries=self.recoveries,
            lost_steps=self.lost_steps,
            exact=self.exact,
            checkpointed=point.step if self.checkpoints.covers(point) else -1,
            manifest=start.manifest,
            holders=start.holders,
            relief=self.relief,
            writers=self._writers(resume.members),
        )
        regroup.check_shares(grains, world.shares_now)
        self.world = world
        self.listening, self.ready, self.progress = set(), set(), {}
        self.released, self.judged = set(), set()
        self.digests.clear()
        self.patience.enter(world)
        self.checkpoints.enter(world)
        self._enter("forming")
        for node in world.members:
            ctx.send(node, Form(world))

    def on_listening(self, node: NodeId, message: Listening) -> None:
        world = self.world
        if world is None or message.generation != world.generation or self.phase != "forming":
            return
        self.listening.add(node)
        *first, last = world.members
        if node == last:
            self.ctx.send(world.members[0], Continue(world.job, world.generation))
        elif self.listening == set(first):
            self.ctx.send(last, Go(world.job, world.generation))

    def on_ready(self, node: NodeId, message: Ready) -> None:
        world = self.world
        if world is None or message.generation != world.generation or self.phase != "forming":
            return
        self.ready.add(node)
        if self.ready != set(world.members):
            return
        for member in world.members:
            self.ctx.send(member, Formed(world.job, world.generation))
        seconds = self._waited()
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
        self._recovered()
        self.evaluate()

    # --- running ----------------------------------------------------------------------------------

    def on_progress(self, node: NodeId, progress: Progress) -> None:
        world = self.world
        if world is None and not self.oriented:
            self.progress[node] = progress
        if world is None or progress.generation != world.generation:
            return
        before = self.progress.get(node)
        if before is None or _place(before) != _place(progress):
            self.moved_at = self.ctx.now
        self.progress[node] = progress
        self.patience.saw(node, progress, self.ctx.now)
        if progress.loss is not None:
            self.loss = progress.loss
        if progress.committed > self.committed:
            self.committed = progress.committed
            if self.phase == "running":
                self._recovered()
                # At a step boundary all members hold the same state, and nobody has to take it.
                self._maybe_grow()
        self.summary_due = True

    def on_digest(self, node: NodeId, told: Digest) -> None:
        """Compare the members' parameters once all have told of the same step."""
        world = self.world
        if world is None or told.generation != world.generation or self.phase != "running":
            return
        self.digests[node] = told
        same = {n: d.digest for n, d in self.digests.items() if d.step == told.step}
        if same.keys() != set(world.members):
            return
        found = divergence.compare(same, told.step)
        if found is None:
            return
        self.tainted, self.rollback = set(found.odd), not found.majority
        for culprit in found.odd or world.members:
            self._blame(culprit, "divergence", found.reason)
        for node in found.odd:
            self._quarantine(node)
        self.evaluate()

    def _quarantine(self, node: NodeId) -> None:
        """Whoever diverges twice computes wrongly: this job goes on without it where it can."""
        self.diverged[node] = self.diverged.get(node, 0) + 1
        if self.diverged[node] == _DIVERGENCES:
            self.benched[node] = inf
            text = f"{node} diverged {_DIVERGENCES} times: the job goes on without it"
            self.ctx.emit("node_quarantined", text, self.record.id, culprit=node)

    def _recovered(self) -> None:
        """Close the recovery once a step is committed in the new world (or none is left to do)."""
        recovery, world = self.recovery, self.world
        if world is None or (
            self.committed <= world.step and self.committed < self.spec.train.steps
        ):
            return
        if self.committed > self.furthest:
            self.furthest, self.fruitless = self.committed, 0
        if recovery is None:
            return
        self.recovery = None
        if not recovery.counted:
            return
        seconds = self.ctx.now - recovery.since
        # A new leader may have found the world formed for it already.
        recovery.climb(world.rung, world.step)
        self.ctx.emit(
            "recovery_finished",
            f"{recovery.rung} took {seconds:.2f} s and lost {recovery.lost} committed steps",
            world.job,
            world.generation.counter,
            rung=recovery.rung,
            seconds=round(seconds, 4),
            lost_steps=recovery.lost,
            resume_step=world.step,
        )

    def _judge(self) -> None:
        """Tell the members whether their probes agree, before the first step of fresh processes."""
        world = self.world
        assert world is not None
        fresh: list[tuple[NodeId, dict[str, Any]]] = []
        for node in world.members:
            status = self.statuses.get(node)
            if status is None or status.trainer is None or status.world is None:
                return
            if status.trainer.judged or node in self.judged:
                continue
            if status.trainer.probe is None or status.world.generation != world.generation:
                return
            fresh.append((node, status.trainer.probe))
        if not fresh:
            return
        exact, reason = _verdict(fresh)
        if self.spec.world.reduction != "exact":
            exact, reason = False, 'reduction is "fast"'
        self.exact = self.exact and exact
        for node, _ in fresh:
            self.judged.add(node)
            self.ctx.send(node, Verdict(world.job, world.generation, exact, reason))

    def _maybe_grow(self) -> None:
        world = self.world
        if world is None or self.recovery is not None or self.committed <= world.step:
            return
        if self.committed >= self.spec.train.steps:
            return
        room = (
            self.spec.world.max - len(world.members)
            if self.spec.world.max
            else len(self.view.members)
        )
        entering = [
            n
            for n in self._trainers("ready", "active")
            if n not in world.members and self.benched.get(n, 0.0) <= self.ctx.now
        ][:room]
        if not entering or not all(self._warm(n) for n in (*world.members, *entering)):
            return
        self._freeze([*world.members, *entering])

    def _warm(self, node: NodeId) -> bool:
        status = self.statuses.get(node)
        return status is not None and status.warm

    def _close(self) -> bool:
        """Let the members leave once the last step's checkpoint is consistent. True at the end."""
        newest = self.newest
        if newest is None or newest.step != self.spec.train.steps:
            return False
        # In another phase they are being asked, or told, to enter the next world.
        for node in self._trainers("finished") if self.phase == "running" else ():
            if node not in self.released and self._is_here(node):
                self.released.add(node)
                self.ctx.send(node, Release(self.record.id, newest.generation))
        world = self.world
        same = world is not None and world.lineage == newest.lineage
        training = [
            n for n in self._trainers("active") if world is not None and same and n in world.members
        ]
        left = self._trainers("done") and not self._trainers("finished", "released")
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
        if self.phase == "forming" and now >= self._form_deadline():
            assert self.world is not None
            late = sorted(set(self.world.members) - self.ready)
            self._blame(
                late[0], "hang", f"the world did not form in {waited:.0f} s; waiting for {late}"
            )
        if self.phase == "running" and self._reduction_hangs():
            assert self.world is not None
            step, seconds = self.committed + 1, self._reduce_seconds()
            text = f"every member delivered step {step}, nothing moved for {seconds:.1f} s"
            self._blame(self.world.members[0], "hang", text)
        if self.phase == "running" and self.world is not None:
            self._hurry(self.world)
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

    def _form_deadline(self) -> float:
        timing = self.ctx.timing
        world = self.world
        loading = world is not None and any(s not in ("keep", "init") for s in world.sources)
        return self.phase_since + (timing.load_seconds if loading else timing.form_seconds)

    def _reduction_hangs(self) -> bool:
        world = self.world
        if world is None or len(world.members) < 2 or self.committed >= self.spec.train.steps:
            return False
        phases = [p.phase for n, p in self.progress.items()]
        stuck = len(phases) == len(world.members) and all(phase == "reduce" for phase in phases)
        return stuck and self.ctx.now - self.moved_at >= self._reduce_seconds()

    def deadlines(self) -> list[float]:
        timing, since = self.ctx.timing, self.phase_since
        times = [self.hold_off, *self.checkpoints.deadlines()]
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
                times.append(self._form_deadline())
            case "running":
                times.append(self.moved_at + self._reduce_seconds())
                times += self.patience.deadlines()
                times += self.benched.values()
        if self.summary_due:
            times.append(self.summary_at + timing.summary_seconds)
        return times

    # --- what the user sees -----------------------------------------------------------------------

    def state(self) -> str:
        if self.phase == "running":
            return "running"
        if self.world is None and self.recovery is None:
            return "parked" if self._short() else "running"
        return "parked" if self.phase == "waiting" and self._short() else "recovering"

    def _short(self) -> bool:
        able = self._trainers("active", "finished", "ready", "starting")
        return len(self.view.members) < self.spec.world.min or (
            len(able) < self.spec.world.min and self._waited() > self.ctx.timing.holding_seconds
        )

    def maybe_summarise(self) -> None:
        if not self.summary_due or self.ctx.now < self.summary_at + self.ctx.timing.summary_seconds:
            return
        self.summary_due, self.summary_at = False, self.ctx.now
        summary = Summary(self.record.id, self.summary())
        for node in self.view.members:
            self.ctx.send(node, summary)

    def summary(self) -> dict[str, Any]:
        world, newest = self.world, self.newest
        state = self.state()
        ranks = []
        if world is not None and self.phase == "running":
            for rank, node in enumerate(world.members):
                status, progress = self.statuses.get(node), self.progress.get(node)
                now = world.shares_now if self.committed <= world.step else world.shares
                ranks.append(
                    {
                        "rank": rank,
                        "node": node,
                        "pid": status.trainer.pid if status and status.trainer else None,
                        "reducer_pid": status.reducer_pid if status else None,
                        "step": progress.step if progress else world.step,
                        "grains": sum(end - start for start, end in now[rank]),
                    }
                )
        speeds = [p.steps_per_second for p in self.progress.values() if p.steps_per_second > 0]
        traffic = [p.metrics.get("bytes_per_step", 0) for p in self.progress.values()]
        return {
            "state": state,
            "reason": self.why_waiting or None if state != "running" else None,
            "generation": world.generation.counter if world is not None else 0,
            "step": self.committed,
            "loss": self.loss if self.committed else None,
            "steps_per_second": round(min(speeds), 3) if speeds else 0.0,
            "recoveries": self.recoveries,
            "lost_steps": self.lost_steps,
            "exact": self.exact and self.spec.world.reduction == "exact",
            "bytes_per_step": max(traffic, default=0),
            "digest": newest.digest if newest is not None and self.committed else None,
            "digest_step": newest.step if newest is not None and self.committed else None,
            "ranks": ranks,
        }


def _place(progress: Progress) -> tuple[str, int, int]:
    return progress.phase, progress.step, progress.committed


def _verdict(probes: list[tuple[NodeId, dict[str, Any]]]) -> tuple[bool, str]:
    for node, probe in probes:
        if not probe["repeats"]:
            return False, f"on {node} one grain computed twice gave different bits"
    first_node, first = probes[0]
    for node, probe in probes[1:]:
        for key, what in (
            ("gradient", "gradients"),
            ("update", "updates"),
            ("layout", "state leaves"),
        ):
            if probe[key] != first[key]:
                return False, f"{what} differ between {first_node} and {node}"
    return True, ""
