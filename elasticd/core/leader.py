"""The leader's part in one job: forms its worlds, notices faults, recovers, lets members in, ends it.

Rebuilt from what the members report whenever a leader is elected; nothing here has to survive.

    waiting ──enough trainers──▶ freezing ──all said what they hold──▶ forming ──all ready──▶ running
       ▲                            ▲  ▲                                  │                      │
       │                            │  └───────────── a fault ────────────┘                      │
       └──── fewer than world.min ──┴──────────────── a fault, or a trainer that may enter ──────┘
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from elasticd.checkpoints import choose
from elasticd.checkpoints.manifest import Manifest, Shard
from elasticd.core.context import Context
from elasticd.core.messages import (
    Continue,
    Fault,
    Form,
    Formed,
    Freeze,
    Go,
    Holding,
    JobRecord,
    JobState,
    Listening,
    ManifestStore,
    ManifestStored,
    MemberStatus,
    Progress,
    PullShards,
    Ready,
    Release,
    ShardsWritten,
    Summary,
    Verdict,
    View,
    World,
)
from elasticd.job import JobSpec
from elasticd.recovery import faults, regroup, restore
from elasticd.types import Lineage, NodeId, Point, Stamp, Tag, first_stamp

_FRUITLESS_LIMIT = 8
"""This many recoveries without one committed step between them, and the job fails with its evidence."""

_EARLY = ("starting", "ready")


@dataclass(slots=True)
class Recovery:
    """From the first evidence to the next committed step."""

    since: float
    detected: float
    before: int
    pieces: list[faults.Evidence] = field(default_factory=list)
    counted: bool = False


@dataclass(frozen=True, slots=True)
class Start:
    """What a world starts from."""

    resume: restore.Resume
    rung: str
    parent: Point | None = None
    manifest: Manifest | None = None
    holders: tuple[tuple[NodeId, ...], ...] = ()


@dataclass(slots=True)
class Checkpointing:
    """A state whose shards are being written or whose manifest is being stored."""

    lineage: Lineage
    step: int
    stamp: Stamp
    count: int
    generation: Tag
    digest: str = ""
    sizes: dict[int, tuple[int, str]] = field(default_factory=dict)
    holders: dict[int, set[NodeId]] = field(default_factory=dict)
    stored: set[NodeId] = field(default_factory=set)
    manifest: Manifest | None = None
    pulled: bool = False
    announced: bool = False
    stall_seconds: float = 0.0
    write_seconds: float = 0.0


@dataclass(slots=True)
class Driver:
    ctx: Context
    record: JobRecord
    spec: JobSpec
    view: View
    phase: str = "waiting"
    phase_since: float = 0.0
    started_at: float = 0.0
    why_waiting: str = "trainers are starting"
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
    exact: bool = True
    checkpoints: dict[tuple[int, Stamp, int], Checkpointing] = field(default_factory=dict)
    newest: Manifest | None = None
    judged: Tag | None = None
    released: bool = False
    outcome: tuple[JobState, str] | None = None
    """(state, reason) once the job has ended; the node writes it into the job's record."""
    summary_at: float = 0.0
    summary_due: bool = True

    # --- reports of members ----------------------------------------------------------------------------

    def on_status(self, node: NodeId, status: MemberStatus) -> None:
        if status.epoch != self.view.epoch:
            return
        self.ctx.saw(status.counter)
        self.statuses[node] = status
        for stored in status.stored:
            self._know(stored.manifest)
        self.summary_due = True
        self.evaluate()

    def on_fault(self, node: NodeId, fault: Fault) -> None:
        if fault.fatal:
            self._fail(fault.fatal)
            return
        stale = self.world is not None and fault.generation.counter < self.world.generation.counter
        if stale and fault.fault != "worker_exit":
            return
        self._blame(fault.culprit, fault.fault, fault.evidence)
        self.evaluate()

    def on_view(self, view: View) -> None:
        """A new view under the same leader: what was asked in the old one is void."""
        lost = [n for n in self.view.members if n not in view.members]
        self.view = view
        self.statuses.clear()
        if self.phase == "freezing":
            self._enter("waiting", "the view changed")
        self._blame_lost(lost)
        self.evaluate()

    def _blame_lost(self, nodes: list[NodeId]) -> None:
        for node in nodes:
            if self.world is not None and node in self.world.members:
                seen = self.ctx.lost.get(node, self.ctx.now)
                self._blame(node, "peer_lost", f"{node} left the view", seen)

    def _blame(self, culprit: NodeId, fault: str, text: str, seen: float | None = None) -> None:
        """Take in evidence that was first seen at ``seen`` (now) and leave a world that it breaks."""
        now = self.ctx.now
        seen = now if seen is None else seen
        if self.recovery is None:
            self.recovery = Recovery(since=seen, detected=now, before=self.committed)
        recovery = self.recovery
        recovery.since = min(recovery.since, seen)
        recovery.pieces.append(faults.Evidence(culprit, fault, text, seen))
        if self.world is None or culprit not in self.world.members:
            return
        if not recovery.counted:
            recovery.counted = True
            self.recoveries += 1
        status = self.statuses.get(culprit)
        if fault == "worker_exit":
            # What its daemon said of that trainer is out of date, and survivors wait for no replacement.
            self.asked.discard(culprit)
            self.holdings.pop(culprit, None)
            if status is not None:
                self.statuses[culprit] = replace(status, trainer=None, world=None, formed=False)
        if self.phase in ("running", "forming"):
            self._enter("waiting", "a member failed")

    # --- the next thing to do --------------------------------------------------------------------------------

    def evaluate(self) -> None:
        """Go on as far as what is known allows."""
        if self.outcome is not None:
            return
        match self.phase:
            case "waiting":
                self._maybe_freeze()
            case "freezing":
                if self.asked <= self.holdings.keys():
                    self._plan()
            case "running":
                self._judge()
                self._watch_end()
                self._maybe_grow()

    def _enter(self, phase: str, why: str = "") -> None:
        self.phase, self.phase_since, self.why_waiting = phase, self.ctx.now, why
        self.summary_due = True

    def _trainers(self, *phases: str) -> list[NodeId]:
        return [
            n for n in self.view.members
            if (s := self.statuses.get(n)) is not None and s.trainer is not None and s.trainer.phase in phases
        ]  # fmt: skip

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

    def _maybe_freeze(self) -> None:
        if self._adopt():
            return
        self._inherit()
        holding = self._trainers("active", "finished")
        able = holding + self._trainers("ready")
        silent = [n for n in self.view.members if n not in self.statuses]
        if silent and self._waited() < self.ctx.timing.holding_seconds:
            self.why_waiting = f"waiting to hear from {', '.join(silent)}"
            return
        if len(able) < self.spec.world.min:
            self.why_waiting = (
                f"{len(able)} of at least {self.spec.world.min} members are ready"
                + self._troubles()
            )
            return
        patience = (
            self.ctx.timing.restore_seconds
            if self._has_history()
            else self.ctx.timing.start_seconds
        )
        if not holding and self._unsettled() and self._waited() < patience:
            self.why_waiting = f"trainers are starting on {', '.join(self._unsettled())}"
            return
        self._freeze(holding if len(holding) >= self.spec.world.min else able)

    def _troubles(self) -> str:
        texts = [f"{n}: {s.trouble}" for n, s in sorted(self.statuses.items()) if s.trouble]
        return "; " + "; ".join(texts) if texts else ""

    def _waited(self) -> float:
        return self.ctx.now - self.phase_since

    def _has_history(self) -> bool:
        return self.newest is not None or any(s.stored for s in self.statuses.values())

    def _adopt(self) -> bool:
        """A new leader goes on with a world that is whole, without touching it."""
        worlds = [s.world for s in self.statuses.values() if s.world is not None and s.formed]
        if self.world is not None or self.recovery is not None or not worlds:
            return False
        world = max(worlds, key=lambda w: w.generation)
        for node in world.members:
            status = self.statuses.get(node)
            if (
                status is None
                or not status.formed
                or status.world is None
                or status.trainer is None
            ):
                return False
            if status.world.generation != world.generation:
                return False
        self._take(world)
        self._enter("running")
        self.committed, self.moved_at = max(self.committed, world.step), self.ctx.now
        self.ctx.log(
            "info", "adopted a whole world", job=self.record.id, generation=str(world.generation)
        )
        return True

    def _inherit(self) -> None:
        """A new leader takes over a world that its predecessor's loss, or another's, has broken."""
        worlds = [s.world for s in self.statuses.values() if s.world is not None]
        if self.world is not None or not worlds:
            return
        world = max(worlds, key=lambda w: w.generation)
        self._take(world)
        self.committed = max(self.committed, world.step)
        self._blame_lost([n for n in world.members if n not in self.view.members])
        if self.recovery is None:
            text = "its leader was lost while the world formed"
            self._blame(world.members[0], "ring_broken", text)

    def _take(self, world: World) -> None:
        self.world = world
        self.recoveries = max(self.recoveries, world.recoveries)
        self.lost_steps = max(self.lost_steps, world.lost_steps)
        self.exact = world.exact

    def _freeze(self, nodes: list[NodeId]) -> None:
        self.serial = self.ctx.nonce()
        self.asked = set(nodes)
        self.holdings = {}
        self._enter("freezing")
        for node in nodes:
            self.ctx.send(node, Freeze(self.view.epoch, self.record.id, self.serial))

    def on_holding(self, node: NodeId, holding: Holding) -> None:
        self.ctx.saw(holding.counter)
        if self.phase != "freezing" or holding.serial != self.serial:
            return
        self.holdings[node] = holding
        self.evaluate()

    # --- planning ------------------------------------------------------------------------------------------

    def _plan(self) -> None:
        start = self._start_point()
        if isinstance(start, str):
            self._enter("waiting", start)
            return
        mismatch = self._fingerprints(start.resume.members)
        if mismatch:
            self._fail(mismatch)
            return
        if self.fruitless > _FRUITLESS_LIMIT:
            self._fail(
                f"{self.fruitless} recoveries in a row without one committed step; {self._evidence()}"
            )
            return
        if start.rung == "restore" and self.recovery is None:
            self.recovery = Recovery(self.started_at, self.started_at, self.committed, counted=True)
            self.recoveries += 1
        self._diagnose(start.resume)
        self._form(start)

    def _start_point(self) -> Start | str:
        """What the next world starts from, or why none can start now."""
        points = [h.point for h in self.holdings.values() if h.point is not None]
        if points:
            return self._from_survivors(points)
        stored = {n: s.stored for n, s in self.statuses.items()}
        choice = choose.newest(stored)
        known = self.newest
        if known is not None and (choice is None or choice.manifest.step < known.step):
            if not self._waited_for_restore():
                return f"shards of checkpoint {known.step} are on nodes that are away"
            self.ctx.log("warning", "restoring an older checkpoint", newest_known=known.step)
        members = tuple(sorted(self.holdings))
        if self.spec.world.max:
            members = members[: self.spec.world.max]
        if choice is not None:
            return self._from_checkpoint(choice, members)
        lineage = Lineage(self.ctx.nonce())
        point = Point(lineage, 0, first_stamp(self.record.id, lineage))
        sources = ("init", *(f"peer:{members[0]}" for _ in members[1:]))
        return Start(restore.Resume(point, members, sources, "the job starts"), "start")

    def _from_survivors(self, points: list[Point]) -> Start:
        # Two lineages that meet: the further one goes on, the other's trainers take its state.
        best = max(points, key=lambda p: (p.step, p.lineage, p.stamp))
        previous = self.world.members if self.world is not None else ()
        holdings = {n: h.point for n, h in self.holdings.items()}
        others = tuple(
            n for n in sorted(holdings) if (p := holdings[n]) is None or p.lineage != best.lineage
        )
        resume = restore.from_survivors(
            holdings, best.lineage, previous, others, self.spec.world.max
        )
        assert resume is not None
        rung = "regroup" if self._somebody_left() else "retry"
        if self.recovery is None:
            rung = "grow"
        return Start(resume, rung, self._parent_of(best.lineage))

    def _from_checkpoint(self, choice: choose.Choice, members: tuple[NodeId, ...]) -> Start:
        manifest = choice.manifest
        point = Point(Lineage(self.ctx.nonce()), manifest.step, manifest.stamp)
        reason = f"no living trainer holds a state; {choice.reason}"
        resume = restore.Resume(point, members, ("checkpoint",) * len(members), reason)
        return Start(resume, "restore", manifest.point, manifest, choice.sources)

    def _waited_for_restore(self) -> bool:
        return self.ctx.now - self.restore_since() >= self.ctx.timing.restore_seconds

    def restore_since(self) -> float:
        return self.recovery.since if self.recovery is not None else self.started_at

    def _parent_of(self, lineage: Lineage) -> Point | None:
        worlds = [self.world, *(s.world for s in self.statuses.values())]
        return next((w.parent for w in worlds if w is not None and w.lineage == lineage), None)

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

    # --- forming ---------------------------------------------------------------------------------------------

    def _form(self, start: Start) -> None:
        ctx, grains = self.ctx, self.spec.grains
        resume, rung, point = start.resume, start.rung, start.resume.point
        previous = self.world
        if self.recovery is not None:
            self.fruitless += 1
        ctx.counter += 1
        generation = Tag(ctx.counter, ctx.me, ctx.nonce())
        lost = max(0, self.committed - point.step) if rung == "restore" else 0
        self.lost_steps += lost
        kept = {}
        if previous is not None and point.lineage == previous.lineage:
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
            checkpointed=point.step if self._newest_is(point) else -1,
            manifest=start.manifest,
            holders=start.holders,
        )
        regroup.check_shares(grains, world.shares_now)
        self.world = world
        self.listening, self.ready, self.progress = set(), set(), {}
        self.released, self.judged = False, None
        self._enter("forming")
        for node in world.members:
            ctx.send(node, Form(world))

    def _newest_is(self, point: Point) -> bool:
        newest = self.newest
        return newest is not None and newest.step == point.step and newest.stamp == point.stamp

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
        self.committed = world.step if world.rung == "restore" else max(self.committed, world.step)
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

    # --- running ------------------------------------------------------------------------------------------------

    def on_progress(self, node: NodeId, progress: Progress) -> None:
        world = self.world
        if world is None or progress.generation != world.generation:
            return
        before = self.progress.get(node)
        if before is None or _place(before) != _place(progress):
            self.moved_at = self.ctx.now
        self.progress[node] = progress
        if progress.loss is not None:
            self.loss = progress.loss
        if progress.committed > self.committed:
            self.committed = progress.committed
            self._recovered()
        self.summary_due = True
        if self.phase == "running":
            self._maybe_grow()

    def _recovered(self) -> None:
        """Close the recovery once a step is committed in the new world (or none is left to do)."""
        recovery, world = self.recovery, self.world
        if world is None or (
            self.committed <= world.step and self.committed < self.spec.train.steps
        ):
            return
        self.fruitless = 0
        if recovery is None:
            return
        self.recovery = None
        if not recovery.counted:
            return
        seconds = self.ctx.now - recovery.since
        lost = max(0, recovery.before - world.step)
        self.ctx.emit(
            "recovery_finished",
            f"{world.rung} took {seconds:.2f} s and lost {lost} committed steps",
            world.job,
            world.generation.counter,
            rung=world.rung,
            seconds=round(seconds, 4),
            lost_steps=lost,
            resume_step=world.step,
        )

    def _judge(self) -> None:
        """Tell the members whether their probes agree, before the first step of fresh processes."""
        world = self.world
        assert world is not None
        fresh = []
        for node in world.members:
            status = self.statuses.get(node)
            if status is None or status.trainer is None:
                return
            if not status.trainer.judged:
                fresh.append((node, status.trainer.probe))
        if not fresh or self.judged == world.generation:
            return
        if any(probe is None for _, probe in fresh):
            return
        self.judged = world.generation
        exact, reason = _verdict([(n, p) for n, p in fresh if p is not None])
        if self.spec.world.reduction != "exact":
            exact, reason = False, 'reduction is "fast"'
        self.exact = self.exact and exact
        for node, _ in fresh:
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
        entering = [n for n in self._trainers("ready", "active") if n not in world.members][:room]
        if not entering or not all(self._warm(n) for n in (*world.members, *entering)):
            return
        self._freeze([*world.members, *entering])

    def _warm(self, node: NodeId) -> bool:
        status = self.statuses.get(node)
        return status is not None and status.warm

    def _watch_end(self) -> None:
        world = self.world
        assert world is not None
        phases = {
            n: s.trainer.phase
            for n in world.members
            if (s := self.statuses.get(n)) is not None and s.trainer is not None
        }
        if not self.released and len(phases) == len(world.members):
            newest = self.newest
            final = newest is not None and newest.step == self.spec.train.steps
            if final and set(phases.values()) <= {"finished", "released", "done"}:
                self.released = True
                for node in world.members:
                    self.ctx.send(node, Release(world.job, world.generation))
        done = [n for n, phase in phases.items() if phase == "done"]
        if done and all(phase in (*_EARLY, "done") for phase in phases.values()):
            assert self.newest is not None
            self.outcome = ("finished", "")

    def _fail(self, reason: str) -> None:
        if self.outcome is None:
            self.outcome = ("failed", reason)

    # --- checkpoints -----------------------------------------------------------------------------------------------

    def on_shards(self, node: NodeId, written: ShardsWritten) -> None:
        key = (written.step, written.stamp, written.count)
        entry = self.checkpoints.get(key)
        if entry is None:
            entry = Checkpointing(
                written.lineage, written.step, written.stamp, written.count, written.generation
            )
            self.checkpoints[key] = entry
        entry.digest = entry.digest or written.digest
        entry.stall_seconds = max(entry.stall_seconds, written.stall_seconds)
        entry.write_seconds = max(entry.write_seconds, written.write_seconds)
        for index, size, digest in written.shards:
            known = entry.sizes.setdefault(index, (size, digest))
            if known != (size, digest) or entry.digest != written.digest:
                self.ctx.emit(
                    "fault_detected",
                    f"divergence: shard {index} of step {written.step} differs on {node}",
                    self.record.id,
                    written.generation.counter,
                    fault="divergence",
                    rank=None,
                    culprit=node,
                    evidence=[f"{digest} instead of {known[1]}"],
                    seconds_to_detect=0.0,
                )
                continue
            entry.holders.setdefault(index, set()).add(node)
        self._maybe_commit(entry)

    def _maybe_commit(self, entry: Checkpointing) -> None:
        if entry.manifest is not None or len(entry.sizes) < entry.count:
            return
        wanted = min(self.spec.checkpoint.replicas, len(self.view.members))
        alive = {i: {n for n in h if n in self.view.members} for i, h in entry.holders.items()}
        if any(not holders for holders in alive.values()):
            return
        if any(len(holders) < wanted for holders in alive.values()):
            self._pull_missing(entry, alive, wanted)
            return
        entry.manifest = Manifest(
            job=self.record.id,
            lineage=entry.lineage,
            parent=self._parent_of(entry.lineage),
            step=entry.step,
            stamp=entry.stamp,
            generation=entry.generation,
            samples=entry.step * self.spec.batch.global_,
            micro=self.spec.batch.micro,
            count=entry.count,
            shards=tuple(Shard(i, *entry.sizes[i]) for i in range(entry.count)),
            holders=tuple(tuple(sorted(alive[i])) for i in range(entry.count)),
            digest=entry.digest,
            created_seconds=self.ctx.wall,
        )
        for node in self.view.members:
            store = ManifestStore(self.record.id, entry.manifest, self.spec.checkpoint.keep)
            self.ctx.send(node, store)

    def _pull_missing(
        self, entry: Checkpointing, alive: dict[int, set[NodeId]], wanted: int
    ) -> None:
        """Nodes that hold no copy, in the world or not, fetch one: a world of one has idle peers."""
        if entry.pulled or (self.world is not None and len(self.world.members) >= wanted):
            return
        entry.pulled = True
        outside = [
            n for n in self.view.members if self.world is None or n not in self.world.members
        ]
        for node in outside[: wanted - 1]:
            shards = tuple((i, *entry.sizes[i]) for i in range(entry.count))
            sources = tuple(tuple(sorted(alive[i])) for i in range(entry.count))
            pull = PullShards(
                self.record.id, entry.generation, entry.lineage, entry.step, entry.stamp,
                entry.count, entry.digest, shards, sources,
            )  # fmt: skip
            self.ctx.send(node, pull)

    def on_manifest_stored(self, node: NodeId, stored: ManifestStored) -> None:
        if not stored.ok:
            self.ctx.log("warning", "manifest not stored", node=node, reason=stored.reason)
            return
        for entry in self.checkpoints.values():
            manifest = entry.manifest
            if manifest is None or entry.announced:
                continue
            if (manifest.step, manifest.stamp) != (stored.step, stored.stamp):
                continue
            entry.stored.add(node)
            wanted = min(self.spec.checkpoint.replicas, len(self.view.members))
            if len(entry.stored & set(self.view.members)) >= wanted:
                self._announce(entry, manifest)
        self.checkpoints = {
            key: e for key, e in self.checkpoints.items()
            if not e.announced and (self.newest is None or e.step > self.newest.step or e.lineage != self.newest.lineage)
        }  # fmt: skip
        self.evaluate()

    def _announce(self, entry: Checkpointing, manifest: Manifest) -> None:
        entry.announced = True
        self._know(manifest)
        self.ctx.emit(
            "checkpoint_committed",
            f"step {manifest.step} is consistent",
            self.record.id,
            manifest.generation.counter,
            step=manifest.step,
            bytes=manifest.bytes,
            replicas=manifest.replicas,
            stall_seconds=entry.stall_seconds,
            write_seconds=entry.write_seconds,
        )
        self.summary_due = True

    def _know(self, manifest: Manifest) -> None:
        if self.newest is None or manifest.step > self.newest.step:
            self.newest = manifest

    # --- time ---------------------------------------------------------------------------------------------------------

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
            text = f"every member delivered step {self.committed + 1}, nothing moved for {timing.hang_seconds} s"
            self._blame(self.world.members[0], "hang", text)
        self.evaluate()

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
        return stuck and self.ctx.now - self.moved_at >= self.ctx.timing.hang_seconds

    def deadlines(self) -> list[float]:
        timing, since = self.ctx.timing, self.phase_since
        times = []
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
                times.append(self.moved_at + timing.hang_seconds)
        if self.summary_due:
            times.append(self.summary_at + timing.summary_seconds)
        return times

    # --- what the user sees -----------------------------------------------------------------------------------------------

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
