"""A node's own part in one job: its trainer, its spare, and the reducer of the present generation.

It follows two masters. The job table says whether the job should run here at all; the leader of the
present view says which world the trainer is in. What happens to the children is reported as status
and as evidence; what to do about it is the leader's decision.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from typing import assert_never

from elasticd.checkpoints.manifest import Stored
from elasticd.core.context import Context
from elasticd.core.taking_part.adoption import AdoptedReducer, AdoptedTrainer
from elasticd.core.taking_part.spares import SpareReducers
from elasticd.core.taking_part.trainers import (
    Trainer,
    ending,
    failed_of,
    progress_of,
    shards_of,
)
from elasticd.core.words.children import (
    FreezeTrainer,
    FromChild,
    HaltAt,
    LendState,
    OfWorld,
    ReducerBroken,
    ReducerFormed,
    ReleaseTrainer,
    RunScript,
    SetInterval,
    TellVerdict,
    TrainerAtRun,
    TrainerDigest,
    TrainerFinished,
    TrainerHolds,
    TrainerLends,
    TrainerLoaded,
    TrainerLostReducer,
    TrainerNotFinite,
    TrainerOutOfMemory,
    TrainerPrepared,
    TrainerProbed,
    TrainerProgress,
    TrainerRechecked,
    TrainerRefused,
    TrainerSkipped,
    TrainerSpoilt,
    TrainerUnloaded,
    TrainerWaiting,
    TrainerWrote,
    TrimMemory,
)
from elasticd.core.words.effects import (
    ContinueReducer,
    EnsureArchive,
    EnterWorld,
    FetchShards,
    FetchState,
    FormReducer,
    KillChild,
    PrepareState,
    Reached,
    ShardsFetched,
    StartTrainer,
    StopReducer,
    TellTrainer,
)
from elasticd.core.words.messages import Message
from elasticd.core.words.records import JobRecord, Wanted, World
from elasticd.core.words.shards import Digest, PullShards, ShardsFailed, ShardsWritten
from elasticd.core.words.worlds import (
    Fault,
    Form,
    Freeze,
    Holding,
    Lend,
    Lent,
    Listening,
    MemberStatus,
    Prepare,
    Prepared,
    Pressed,
    Progress,
    Ready,
    Rechecked,
)
from elasticd.recovery import signatures
from elasticd.recovery.faults import RING_FAULTS, of_reducer
from elasticd.recovery.headroom import Headroom
from elasticd.settings.job import JobSpec
from elasticd.types import Lineage, NodeId, Point, Stamp, Tag

_START_LIMIT = 4
"""After a trainer has died this often before Run(...), it is tried again only now and then."""
_HOPELESS_STARTS = 2 * _START_LIMIT
_KEPT_REPORTS = 4
"""Shards of this many states are told again to a new leader, which may have to finish the work."""
_UNWANTED = "the node is being drained"
_PRESSED_SECONDS = 60.0
"""After a sign of short memory no spare is started for so long."""
_LONGEST_PAUSE_SECONDS = 10.0


@dataclass(slots=True)
class Pending:
    """A freeze that has not been answered yet."""

    epoch: Tag
    serial: str
    asked: int
    """The serial that the trainer was given."""
    deadline: float
    alone: bool
    """Nobody else is asked: the next world needs no reducer."""
    point: Point | None = None
    committed: int = 0
    gives: tuple[Stamp, ...] = ()
    replays: bool = False
    answered: bool = False


@dataclass(slots=True)
class Member:
    ctx: Context
    record: JobRecord
    spec: JobSpec
    reducers: SpareReducers
    leader: NodeId | None = None
    epoch: Tag | None = None
    trainer: Trainer | None = None
    spare: Trainer | None = None
    reducer: int | None = None
    given_up: int | None = None
    """The reducer that we did not want any more last."""
    world: World | None = None
    """The newest world that this node was made a member of, also after it has left it."""
    active: bool = False
    """The trainer is in ``world``: it was not frozen since, and lives."""
    formed: bool = False
    settled: bool = False
    """A step is committed in this world: spares may take the processor from training now."""
    in_ring: bool = False
    we_stopped: bool = False
    """Our reducer is stopped because the ring's bring-up wants that, by nobody else."""
    ring_deadline: float = 0.0
    has_state: bool = False
    state_generation: Tag | None = None
    """The newest world in which the trainer has had the right state."""
    faults: list[tuple[str, str]] = field(default_factory=list)
    """What speaks against the node in its world (fault, evidence), for a leader that comes
    later."""
    broken_at: float = -inf
    """When the ring of the world broke."""
    answerer: int | None = None
    """The trainer that answered the last freeze: no other may enter the world that is then
    formed."""
    pending: Pending | None = None
    freezes: int = 0
    """Serial of the last freeze or delivery."""
    held: Point | None = None
    """What the trainer held by its last answer."""
    preparing: tuple[int, Tag] | None = None
    """The serial of the state that is being brought to a trainer in no world, and for which."""
    headroom: Headroom = field(default_factory=Headroom)
    pressed_until: float = 0.0
    """Memory is short on this machine: no spare before this time; 0: it isn't."""
    ways_at: float = inf
    """When the leader is to be told of links that changed."""
    archive: str = "wanted"
    archive_at: float = 0.0
    committed: int = 0
    progress: Progress | None = None
    written: list[ShardsWritten] = field(default_factory=list)
    trouble: str = ""
    why_none: str = ""
    """Why no trainer is started for a while."""
    start_at: float = 0.0
    fatal: str = ""
    false_starts: int = 0
    stored: tuple[Stored, ...] = ()
    ended: bool = False
    unwanted: bool = False
    """No job is to run on this node."""
    let_go: bool = False
    """The world runs without us, and our trainer has ended."""

    def recall(self, reached: Sequence[Reached]) -> None:
        """Take in what a daemon before this one saw committed in the newest world."""
        for noted in reached:
            if self.world is not None and (noted.job, noted.generation) == (
                self.record.id,
                self.world.generation,
            ):
                self.committed = noted.step

    # --- what should run here ---------------------------------------------------------------------

    def reconcile(self) -> None:
        """Bring the children in line with the job's record."""
        if self.record.ended or self.record.state == "queued":
            self._end()
            return
        if self.record.state != "running" or self.trouble:
            return
        if self.archive == "wanted":
            self.archive = "asked"
            self.ctx.do(EnsureArchive(self.record))
        if self.archive != "ready":
            return
        if not self._may_run():
            return
        if self.trainer is None:
            self._replace_trainer()
        if self.spec.recovery.spare == "none" or self.record.relief:
            if self.spare is not None:
                self.ctx.do(KillChild(self.spare.child, "memory is short"))
                self.spare = None
        elif (
            self.active
            and self.settled
            and self.spare is None
            and not self._done()
            and not self.pressed_until
        ):
            self.spare = self._start(spare=True)

    def _may_run(self) -> bool:
        """False on a node that no job is to run on, unless its trainer still takes part."""
        if not self.unwanted:
            self.let_go = False
            return True
        if self.spare is not None:
            self.ctx.do(KillChild(self.spare.child, _UNWANTED))
            self.spare = None
        if self.trainer is None and not self.let_go:
            self.why_none, self.let_go = _UNWANTED, True
            self.report()
        return False

    def on_discharge(self) -> None:
        """The world runs without us, and we are to leave."""
        if not self.unwanted or self.active or self.pending is not None:
            return
        if self.trainer is not None and self.trainer.phase != "done":
            self.ctx.do(KillChild(self.trainer.child, _UNWANTED, graceful=True))
        self._drop_reducer(_UNWANTED)
        self.trainer = self.answerer = self.state_generation = None
        self._may_run()

    @property
    def wants_reducer(self) -> bool:
        """A world may have to be formed; but while one forms, or its first step runs, a starting
        spare would only take the processor from it."""
        if self.pending is not None:
            return True
        if self.let_go:
            return False
        runs = self.record.state == "running" and not self.trouble and not self._done()
        return runs and self.archive == "ready" and (self.settled or not self.active)

    def _done(self) -> bool:
        return self.trainer is not None and self.trainer.phase in ("finished", "released", "done")

    def _replace_trainer(self) -> None:
        if self.spare is not None:
            self.trainer, self.spare = self.spare, None
            if self.trainer.phase == "waiting":
                self.trainer.phase = "starting"
                self.ctx.do(TellTrainer(self.trainer.child, RunScript()))
        elif self.false_starts < _START_LIMIT or self.ctx.now >= self.start_at:
            self.why_none = ""
            self.trainer = self._start(spare=False)
            self.start_at = self.ctx.now + _LONGEST_PAUSE_SECONDS
        else:
            self.why_none = f"trainer died {self.false_starts} times before Run(...)"
        self.report()

    def _start(self, spare: bool) -> Trainer:
        child = self.ctx.next_child()
        self.ctx.do(StartTrainer(child, self.record.id, spare))
        return Trainer(child)

    def _why_ended(self) -> str:
        return "job paused" if self.record.state == "queued" else f"job {self.record.state}"

    def _end(self) -> None:
        if self.ended:
            return
        self.ended = True
        for trainer in (self.trainer, self.spare):
            if trainer is not None and trainer.phase != "done":
                self.ctx.do(KillChild(trainer.child, self._why_ended(), graceful=True))
        self._drop_reducer(self._why_ended())
        self.trainer = self.spare = self.world = self.pending = None
        self.active = False

    def adopt(
        self, trainers: Sequence[AdoptedTrainer], reducers: Sequence[AdoptedReducer]
    ) -> set[int]:
        """Go on with children that a daemon before this one has started; returns those that are
        kept."""
        now = self.world.generation if self.world is not None else None

        def merit(one: AdoptedTrainer) -> tuple[bool, bool, bool]:
            return one.said.generation == now is not None, one.used, not one.left.spare

        first, *others = [*sorted(trainers, key=merit, reverse=True), None]
        if first is None:
            return set()
        self.trainer = _adopted(first)
        self.state_generation = first.said.entered
        self.freezes = first.said.serial
        kept = {first.left.child}
        if merit(first)[0] and self.world is not None and self.ctx.me in self.world.members:
            kept |= self._adopt_place(self.world, first, reducers)
        if (second := others[0]) is not None and not second.used:
            self.spare = _adopted(second)
            kept.add(second.left.child)
        if self.trainer.phase == "waiting":
            self.trainer.phase = "starting"
            self.ctx.do(TellTrainer(self.trainer.child, RunScript()))
        return kept

    def _adopt_place(
        self, world: World, trainer: AdoptedTrainer, reducers: Sequence[AdoptedReducer]
    ) -> set[int]:
        """The trainer is in the newest world that we know of; and the reducer, if it lives."""
        self.active = True
        self.has_state = trainer.said.entered == trainer.said.generation
        self.in_ring, self.we_stopped = len(world.members) == 1, False
        self.ring_deadline = self.ctx.now + self.ctx.timing.form_seconds
        for reducer in reducers:
            if reducer.serves(world.generation):
                self.reducer, self.in_ring = reducer.left.child, reducer.said.formed
                self.reducers.pids[reducer.left.child] = reducer.left.pid
                return {reducer.left.child}
        if not self.in_ring:
            self._accuse("reducer_gone", "its reducer ended while its daemon was away")
        return set()

    # --- view and status --------------------------------------------------------------------------

    def follow(self, epoch: Tag) -> None:
        """A new view: tell its leader all we know."""
        self.leader, self.epoch = epoch.leader, epoch
        self.pending = None
        self.report()
        for written in self.written:
            self._tell_leader(written)
        if self.active and self.progress is not None:
            # A leader that has never heard of a phase can't see that it lasts too long.
            self._tell_leader(self.progress)

    def report(self) -> None:
        self.ways_at = inf
        if self.leader is None or self.epoch is None or self.ended:
            return
        trainer = self.trainer
        message = MemberStatus(
            epoch=self.epoch,
            job=self.record.id,
            trainer=trainer.status() if trainer is not None else None,
            trouble=self.trouble or self.why_none,
            hopeless=self.false_starts >= _HOPELESS_STARTS,
            fatal=self.fatal,
            world=self.world,
            formed=self.formed,
            ready=self.active and self.in_ring and self.has_state and not self.faults,
            faults=tuple(self.faults),
            committed=self.committed,
            warm=bool(self.reducers.host()),
            reducer_pid=self.reducers.pids.get(self.reducer) if self.reducer is not None else None,
            counter=self.ctx.counter,
            stored=self.stored,
            domain=self.ctx.domain,
            hosts=self.ctx.hosts,
            paths=self.ctx.ways(),
        )
        self.ctx.send(self.leader, message)

    def _tell_leader(self, message: Message) -> None:
        if self.leader is not None:
            self.ctx.send(self.leader, message)

    def _accuse(
        self,
        fault: str,
        evidence: str,
        fatal: str = "",
        status: int | None = None,
        age_seconds: float = 0.0,
        confidence: str = "",
    ) -> None:
        """Tell the leader what happened here; and its successor, should it not live to act on
        it."""
        if self.active:
            self.faults.append((fault, evidence))
        if fault in RING_FAULTS:
            self.broken_at = self.ctx.now
        generation = self.world.generation if self.world is not None else Tag(0, self.ctx.me, "")
        me = self.ctx.me
        self._tell_leader(
            Fault(
                self.record.id, generation, me, fault, evidence, fatal, status, age_seconds,
                confidence,
            )
        )  # fmt: skip

    def on_ways(self, gather: bool) -> None:
        """Links changed: the leader chooses rings by them. With ``gather`` it is told of several at
        once, unless our ring needs one that is dead."""
        if not gather or self._ring_trouble():
            self.report()
        else:
            self.ways_at = min(self.ways_at, self.ctx.now + self.ctx.timing.gather_seconds)
        self._mind_ring()

    def _mind_ring(self) -> None:
        """Say so if the ring can't go on: its sockets may wait for ever without a word."""
        if trouble := self._ring_trouble():
            self._accuse("link_lost", trouble)

    def _ring_trouble(self) -> str:
        """That the way which the ring takes to a neighbour is dead, if it is."""
        world = self.world
        if world is None or not self.active or self.faults or len(world.members) < 2:
            return ""
        rank = world.members.index(self.ctx.me)
        left, right = world.members[rank - 1], world.members[(rank + 1) % len(world.members)]
        host = world.hosts[(rank + 1) % len(world.members)].rpartition(":")[0]
        dead = {p.host for p in self.ctx.paths.get(right, ()) if not p.healthy}
        if host in dead:
            return f"nothing comes back from {right} at {host}"
        lost = next((n for n in (left, right) if n in self.ctx.deaf), None)
        return f"{lost} is not heard directly any more" if lost is not None else ""

    # --- the leader's orders ----------------------------------------------------------------------

    def suspend(self, why: str) -> None:
        """Leave the world at once, before any leader says so: nothing may train here now."""
        self.pending = None
        if not self.active:
            return
        self.faults.append(("link_lost", why))
        self._drop_reducer(why)
        self.active = self.formed = False
        self.answerer = None
        if self.trainer is not None and self.trainer.phase in ("active", "finished"):
            self.freezes += 1
            self.ctx.do(TellTrainer(self.trainer.child, FreezeTrainer(self.freezes)))

    def on_freeze(self, freeze: Freeze) -> None:
        self._drop_reducer("the leader froze the generation")
        self.active = self.formed = False
        self.answerer = None
        deadline = self.ctx.now + self.ctx.timing.holding_seconds
        self.freezes += 1
        self.pending = Pending(freeze.epoch, freeze.serial, self.freezes, deadline, freeze.alone)
        trainer = self.trainer
        if trainer is None or trainer.phase in ("starting", "waiting", "done"):
            self.pending.answered = True
        else:
            self.ctx.do(TellTrainer(trainer.child, FreezeTrainer(self.freezes)))
        self._answer()

    def _answer(self) -> None:
        """Answer a freeze once the trainer has said what it holds and a warm reducer is at hand."""
        pending = self.pending
        if pending is None or not pending.answered:
            return
        if not self.reducers.host() and not pending.alone:
            return
        self.pending = None
        trainer = self.trainer
        able = trainer is not None and trainer.phase in ("ready", "active", "finished")
        self.answerer = trainer.child if trainer is not None and able else None
        holding = Holding(
            epoch=pending.epoch,
            job=self.record.id,
            serial=pending.serial,
            able=able,
            point=pending.point,
            entered=self.state_generation,
            committed=pending.committed,
            host=self.reducers.host(),
            counter=self.ctx.counter,
            gives=pending.gives,
            replays=pending.replays,
        )
        self.held = pending.point
        self._tell_leader(holding)

    def on_form(self, form: Form) -> None:
        world, trainer = form.world, self.trainer
        self.ctx.saw(world.generation.counter)
        known = self.world.generation if self.world is not None else None
        if self.ctx.me not in world.members or (known is not None and known >= world.generation):
            return
        if trainer is None or trainer.child != self.answerer:
            # The leader counted on a trainer that has died since; it is being told.
            self.ctx.log("info", "no trainer for this world", generation=str(world.generation))
            return
        self._enter(world, trainer, world.members.index(self.ctx.me))

    def _enter(self, world: World, trainer: Trainer, rank: int) -> None:
        self.ctx.persist("world", world)
        self.ctx.hear(world.job, world.generation)
        self.world, self.active, self.formed, self.settled = world, True, False, False
        self.given_up = None
        self.answerer, self.faults, self.broken_at = None, [], -inf
        self.progress = None
        self.committed = world.step if world.goes_back else max(self.committed, world.step)
        trainer.phase = "active"
        if not trainer.judged:
            trainer.probe = None
        self.in_ring = len(world.members) == 1
        self.ring_deadline = self.ctx.now + self.ctx.timing.form_seconds
        self.has_state = world.sources[rank] in ("keep", "init")
        if self.has_state:
            self.state_generation = world.generation
        self.report()
        if not self.in_ring:
            self.reducer = self.reducers.take(world.hosts[rank])
            if self.reducer is None:
                self._accuse("reducer_lost", "the warm reducer died before the world formed")
                return
        self.ctx.do(EnterWorld(trainer.child, self.reducer, world, rank))
        if not self.has_state:
            self.ctx.do(FetchState(trainer.child, world, self._wanted(world, rank)))
        if self.reducer is not None and rank < len(world.members) - 1:
            self.ctx.do(FormReducer(self.reducer, world, rank))
        self._maybe_ready()
        self._mind_ring()

    def _wanted(self, world: World, rank: int) -> Wanted | None:
        """Where the state of a world is that our trainer lacks; None: in its checkpoint."""
        kind, _, holder = world.sources[rank].partition(":")
        if kind == "checkpoint":
            return None
        point = Point(world.lineage, world.step, world.stamp)
        if kind == "updates":
            return Wanted(point, (NodeId(holder),), self.held)
        named = world.members.index(NodeId(holder))
        order = [*range(named, len(world.members)), *range(named)]
        keep = [world.members[r] for r in order if r == named or world.sources[r] == "keep"]
        return Wanted(point, tuple(keep))

    def on_lend(self, lend: Lend) -> None:
        if self._current(lend.generation) and self.trainer is not None:
            said = LendState(lend.generation, lend.step, lend.log)
            self.ctx.do(TellTrainer(self.trainer.child, said))

    def on_prepare(self, order: Prepare) -> None:
        trainer = self.trainer
        if trainer is None or trainer.phase != "ready" or self.pending is not None:
            text = "no trainer waits here for a state"
            self._tell_leader(Prepared(self.record.id, order.generation, None, text))
            return
        # The trainer lets no delivery in that was ordered before its last freeze.
        self.freezes += 1
        self.preparing = self.freezes, order.generation
        effect = PrepareState(
            trainer.child, self.record.id, order.generation, order.wanted, self.freezes
        )
        self.ctx.do(effect)

    def on_prepare_failed(self, serial: int, reason: str) -> None:
        self._prepared(serial, None, reason)

    def _prepared(
        self, serial: int, point: Point | None, reason: str, replays: bool = False
    ) -> None:
        if self.preparing is not None and self.preparing[0] == serial:
            generation, self.preparing = self.preparing[1], None
            self._tell_leader(Prepared(self.record.id, generation, point, reason, replays))

    def on_go(self, generation: Tag) -> None:
        if self._current(generation) and self.reducer is not None and self.world is not None:
            self.ctx.do(FormReducer(self.reducer, self.world, len(self.world.members) - 1))

    def on_continue(self, generation: Tag) -> None:
        if self._current(generation) and self.reducer is not None:
            self.ctx.do(ContinueReducer(self.reducer))
            self.we_stopped = False

    def on_formed(self, generation: Tag) -> None:
        if self._current(generation):
            self.formed = True
            self.report()

    def on_verdict(self, generation: Tag, exact: bool, reason: str) -> None:
        if self._current(generation) and self.trainer is not None and not self.trainer.judged:
            self.trainer.judged = True
            verdict = TellVerdict(generation, exact, reason)
            self.ctx.do(TellTrainer(self.trainer.child, verdict))
            self.report()

    def on_halt(self, generation: Tag, step: int) -> None:
        if self._current(generation) and self.trainer is not None:
            self.ctx.do(TellTrainer(self.trainer.child, HaltAt(generation, step)))

    def on_release(self) -> None:
        """The final checkpoint is consistent; whoever has committed the last step may leave."""
        if self.trainer is not None and self.trainer.phase == "finished":
            self.trainer.phase, self.answerer = "released", None
            if self.spare is not None:
                self.ctx.do(KillChild(self.spare.child, "the job is done", graceful=True))
                self.spare = None
            self.ctx.do(TellTrainer(self.trainer.child, ReleaseTrainer()))
            self.report()

    def on_interval(self, generation: Tag, every: int, step: int) -> None:
        if self._current(generation) and self.trainer is not None:
            self.ctx.do(TellTrainer(self.trainer.child, SetInterval(generation, every, step)))

    def on_pull(self, pull: PullShards) -> None:
        report = ShardsWritten(
            self.record.id, pull.generation, pull.lineage, pull.step, pull.stamp, pull.count,
            pull.shards, pull.digest, 0.0, 0.0,
        )  # fmt: skip
        effect = FetchShards(
            self.record.id, pull.step, pull.stamp, pull.count, pull.shards, pull.sources, report
        )
        self.ctx.do(effect)

    def on_pulled(self, fetched: ShardsFetched) -> None:
        report, reason = fetched.report, fetched.reason
        if fetched.ok:
            self._wrote(report)
            return
        self.ctx.log("warning", "shards could not be pulled", reason=reason)
        failed = ShardsFailed(
            report.job, report.generation, report.lineage, report.step, report.stamp,
            report.count, reason, fetched.refused,
        )  # fmt: skip
        self._tell_leader(failed)

    def on_stored(self, stored: tuple[Stored, ...]) -> None:
        """What is on this node's disk has changed."""
        self.stored = stored
        newest: dict[Lineage, int] = {}
        for manifest in (item.manifest for item in stored):
            newest[manifest.lineage] = max(newest.get(manifest.lineage, -1), manifest.step)
        self.written = [w for w in self.written if w.step > newest.get(w.lineage, -1)]
        self.report()

    def _current(self, generation: Tag) -> bool:
        """Whether the trainer is in this world now."""
        return self.active and self.world is not None and self.world.generation == generation

    def _maybe_ready(self) -> None:
        if self.world is not None and self.in_ring and self.has_state:
            self._tell_leader(Ready(self.record.id, self.world.generation))

    # --- the children -----------------------------------------------------------------------------

    def owns(self, child: int) -> bool:
        trainers = [t.child for t in (self.trainer, self.spare) if t is not None]
        return child in trainers or child == self.reducer

    def on_started(self, child: int, pid: int) -> None:
        for trainer in (self.trainer, self.spare):
            if trainer is not None and trainer.child == child:
                trainer.pid = pid
        self.report()

    def on_reducer_ready(self) -> None:
        self._answer()
        self.report()

    def on_reducer_listens(self, child: int) -> None:
        if child != self.reducer or self.world is None:
            return
        if self.world.members[0] == self.ctx.me:
            # Rank N-1 may now connect to our backlog and listen before we go on to connect.
            self.ctx.do(StopReducer(child))
            self.we_stopped = True
        self._tell_leader(Listening(self.record.id, self.world.generation))

    def on_said(self, child: int, word: FromChild) -> None:
        """A child of ours speaks. What no child of its role says does not come as far as this."""
        if child == self.reducer:
            self._reducer_said(word)
            return
        trainer = (
            self.trainer if self.trainer is not None and self.trainer.child == child else self.spare
        )
        if trainer is None or trainer.child != child:
            return
        match word:
            case TrainerWaiting():
                trainer.phase = "waiting"
                if trainer is self.trainer:
                    trainer.phase = "starting"
                    self.ctx.do(TellTrainer(child, RunScript()))
            case TrainerAtRun(fingerprint):
                self._at_run(trainer, fingerprint)
            case _ if trainer is self.trainer:
                self._trainer_said(trainer, word)

    def _at_run(self, trainer: Trainer, fingerprint: dict[str, str]) -> None:
        if trainer.phase in ("starting", "waiting"):
            trainer.phase = "ready"
            trainer.fingerprint = fingerprint
            self.false_starts, self.why_none = 0, ""
            if trainer is self.trainer:
                self.report()

    def _trainer_said(self, trainer: Trainer, word: FromChild) -> None:
        match word:
            case TrainerHolds():
                self._holds(word)
            case TrainerPrepared(serial, point, reason, replays):
                self._prepared(serial, point, reason, replays)
            case TrainerRefused(reason):
                self._accuse("worker_exit", reason, fatal=reason)
            case TrainerProbed():
                trainer.probe = word.digests()
                # It asks, so it knows of no verdict, whatever it was sent.
                trainer.judged = False
                self.report()
            case TrainerWrote():
                self._wrote(shards_of(self.record.id, word))
            case TrainerSkipped():
                self._skipped(word)
            case (
                TrainerLoaded() | TrainerLends() | TrainerSpoilt() | TrainerUnloaded()
                | TrainerProgress() | TrainerLostReducer() | TrainerOutOfMemory()
                | TrainerNotFinite() | TrainerDigest() | TrainerRechecked() | TrainerFinished()
            ):  # fmt: skip
                if self.world is not None and self.world.generation == word.generation:
                    self._said_of_world(trainer, word, self.world)
            case _:
                self.ctx.log("warning", "a trainer said what is not for us", kind=word.kind)

    def _said_of_world(self, trainer: Trainer, word: OfWorld, world: World) -> None:
        """What is said of the newest world; most of it is stale once that was left."""
        if isinstance(word, TrainerProgress):
            self._progress(word, world)
            return
        if not self.active:
            return
        job, generation = self.record.id, world.generation
        match word:
            case TrainerLoaded():
                self.has_state, self.state_generation = True, generation
                self._maybe_ready()
            case TrainerLends(_, step, stamp, reason, never):
                self._tell_leader(Lent(job, generation, step, stamp, reason, never))
            case TrainerSpoilt(_, reason):
                self.ctx.log("warning", "stored shards are rotten", reason=reason)
                self.ctx.do(FetchState(trainer.child, world, None, careful=True))
            case TrainerUnloaded(_, reason):
                self._accuse("state_unavailable", reason)
            case TrainerLostReducer(_, evidence):
                if trainer.phase in ("active", "finished"):
                    self._accuse("reducer_gone", evidence)
            case TrainerOutOfMemory(_, evidence):
                if trainer.phase == "active":
                    self._accuse("oom", evidence)
            case TrainerNotFinite():
                if trainer.phase == "active":
                    self._not_finite(word, world)
            case TrainerDigest(_, step, stamp, digest):
                self._tell_leader(Digest(job, generation, step, stamp, digest))
            case TrainerRechecked(_, step, grain, digest):
                self._tell_leader(Rechecked(job, generation, step, grain, digest))
            case TrainerFinished():
                if trainer.phase == "active":
                    trainer.phase = "finished"
                    self.report()
            case _:
                assert_never(word)

    def _holds(self, said: TrainerHolds) -> None:
        pending = self.pending
        if pending is None or said.serial != pending.asked:
            return
        pending.point, pending.committed = said.point, said.committed or 0
        pending.gives, pending.replays = said.gives, said.replays
        pending.answered = True
        self._answer()

    def _progress(self, said: TrainerProgress, world: World) -> None:
        progress = progress_of(self.record.id, said)
        self.progress = progress
        if progress.committed > self.committed:
            self.committed = progress.committed
            self.ctx.do(Reached(self.record.id, world.generation, self.committed))
        self._tell_leader(progress)
        if not self.settled and progress.committed > world.step:
            self.settled = True
            self.reconcile()

    def _wrote(self, written: ShardsWritten) -> None:
        self.written = [*self.written[1 - _KEPT_REPORTS :], written]
        self._tell_leader(written)

    def _skipped(self, said: TrainerSkipped) -> None:
        text = f"step {said.step} was not written here: {said.reason}"
        counter = said.generation.counter
        self.ctx.emit("checkpoint_skipped", text, self.record.id, counter, step=said.step)
        self._tell_leader(failed_of(self.record.id, said))

    def _reducer_said(self, word: FromChild) -> None:
        world = self.world
        if not self.active or world is None:
            return
        match word:
            case ReducerFormed(generation) if generation == world.generation:
                self.in_ring = True
                self._maybe_ready()
            case ReducerBroken(generation, evidence) if generation == world.generation:
                if not self._left_the_loop():
                    self._accuse("ring_broken", evidence)

    def _not_finite(self, said: TrainerNotFinite, world: World) -> None:
        text = f"the loss of step {said.step} is {said.loss}"
        if said.policy == "restore":
            self._accuse("not_finite", text)
        elif world.members[0] == self.ctx.me:
            # All ranks skip it alike; one of them says so.
            self.ctx.emit(
                "step_skipped",
                f'{text}: it is counted, and its update is left out (on_nan = "skip")',
                self.record.id,
                world.generation.counter,
                step=said.step,
            )

    def on_stopped(self, child: int, seconds: float) -> None:
        """A child of ours is stopped, and was for ``seconds``."""
        if child == self.reducer:
            if not self.we_stopped and not self._left_the_loop():
                text = f"its reducer was stopped (SIGSTOP) for {seconds:.1f} s"
                self._accuse("hang", text, age_seconds=seconds)
            return
        for trainer in (self.trainer, self.spare):
            if trainer is not None and trainer.child == child and trainer.phase != "done":
                trainer.hung = (
                    f"its trainer {trainer.pid} was stopped (SIGSTOP) for {seconds:.1f} s"
                    " and could not show its stack"
                )
                trainer.hung_since = self.ctx.now - seconds
                self.ctx.do(KillChild(child, "it was stopped"))

    def on_pressure(self, reason: str, left_bytes: int) -> None:
        """Before memory runs out."""
        self.pressed_until = self.ctx.now + _PRESSED_SECONDS
        gift = self.headroom.sign(left_bytes, self.spare is not None)
        world = self.world
        if gift == "spare" and self.spare is not None:
            self._tell_of_pressure(f"{reason}: its spare trainer ends before something else has to")
            self.ctx.do(KillChild(self.spare.child, reason))
            self.spare = None
        elif gift == "caches" and self.trainer is not None:
            self._tell_of_pressure(f"{reason}: its trainer gives its caches back")
            self.ctx.do(TellTrainer(self.trainer.child, TrimMemory()))
        elif gift == "recompute" and self.active and world is not None:
            text = f"{reason}, less than before it gave up what it could by itself"
            self._tell_of_pressure(f"{text}: it asks the job to need less")
            self._tell_leader(Pressed(self.record.id, world.generation, text))

    def _tell_of_pressure(self, text: str) -> None:
        self.ctx.emit("memory_pressure", text, self.record.id, culprit=self.ctx.me)

    def on_hung(self, generation: Tag, why: str, seconds: float) -> None:
        """The leader has lost patience with our trainer."""
        if self._current(generation) and self.trainer is not None:
            self._kill_hung(self.trainer, why, seconds)

    def _kill_hung(self, trainer: Trainer, why: str, seconds: float) -> None:
        trainer.hung, trainer.hung_since = why, self.ctx.now - seconds
        self.ctx.do(KillChild(trainer.child, f"it hung: {why}", dump=True))

    def on_exit(
        self,
        child: int,
        status: int | None,
        tail: str,
        memory: signatures.Memory | None = None,
    ) -> None:
        if child == self.reducer:
            self.reducer = None
            if self._left_the_loop():
                return
            self._reducer_ended(status)
            return
        if self.spare is not None and self.spare.child == child:
            self.spare = None
            self.false_starts += 1
            self.ctx.log("warning", "spare trainer ended", status=status, tail=tail[-400:])
            if self.false_starts < _START_LIMIT:
                self.reconcile()
            return
        assert self.trainer is not None
        self._trainer_exited(self.trainer, status, tail, memory)

    def on_found_dead(self, child: int, status: int | None) -> None:
        """A child was ending by itself when we asked for its end. The leader may know by now that
        the ring broke, but not that it was here."""
        if child == self.given_up and not self._left_the_loop():
            self._reducer_ended(status)

    def _reducer_ended(self, status: int | None) -> None:
        self._accuse(of_reducer(status), f"reducer ended with {_status(status)}")

    def _left_the_loop(self) -> bool:
        """The trainer was released: its reducer and its neighbours' end, and nobody minds."""
        return self.trainer is not None and self.trainer.phase in ("released", "done")

    def _trainer_exited(
        self, trainer: Trainer, status: int | None, tail: str, memory: signatures.Memory | None
    ) -> None:
        if status == 0 and trainer.phase == "released":
            trainer.phase, self.active = "done", False
            self._drop_reducer("the trainer is done")
            self.report()
            return
        end = ending(trainer, status, tail, memory)
        if trainer.phase in ("starting", "waiting"):
            self.false_starts += 1
        self.trainer = None
        if end.fatal:
            self.fatal, self.trouble = end.fatal, end.fatal.splitlines()[-1]
        age = self.ctx.now - trainer.hung_since if trainer.hung else 0.0
        self._accuse(end.fault, end.evidence, end.fatal, status, age, end.confidence)
        self._drop_reducer("its trainer ended")
        self.active = self.formed = False
        self.answerer = self.state_generation = None
        if self.pending is not None:
            self.pending.answered, self.pending.point = True, None
        if end.fatal:
            self.report()
        else:
            self.reconcile()
            self._answer()

    def _drop_reducer(self, reason: str) -> None:
        if self.reducer is not None:
            self.ctx.do(KillChild(self.reducer, reason))
            self.given_up, self.reducer = self.reducer, None

    # --- shell results and time -------------------------------------------------------------------

    def on_archive(self, ok: bool, reason: str) -> None:
        self.archive = "ready" if ok else "failed"
        self.archive_at = self.ctx.now + self.ctx.timing.retry_seconds
        self.trouble = "" if ok else f"the job's files could not be brought here: {reason}"
        self.reconcile()
        self.report()

    def on_state_failed(self, generation: Tag, reason: str) -> None:
        if self._current(generation):
            self._accuse("state_unavailable", reason)

    def tick(self) -> None:
        now, pending = self.ctx.now, self.pending
        if pending is not None and not pending.answered and now >= pending.deadline:
            assert self.trainer is not None
            seconds = self.ctx.timing.holding_seconds
            self._kill_hung(
                self.trainer, f"its trainer did not say what it holds for {seconds:g} s", seconds
            )
            pending.deadline = now + seconds
        if self._ring_is_due() and now >= self.ring_deadline:
            self.ring_deadline = inf
            self._accuse("hang", f"its ring did not come up in {self.ctx.timing.form_seconds} s")
        if self._starts_later() and now >= self.start_at:
            self.reconcile()
        if self.pressed_until and now >= self.pressed_until:
            self.pressed_until = 0.0
            self.headroom.forget()
            self.reconcile()
        if now >= self.ways_at:
            self.report()
        if self.archive == "failed" and now >= self.archive_at:
            self.archive, self.trouble = "wanted", ""
            self.reconcile()

    def _starts_later(self) -> bool:
        return bool(self.why_none) and self.trainer is None and not self.let_go

    def _ring_is_due(self) -> bool:
        return self.active and not self.in_ring and not self.faults

    def deadlines(self) -> list[float]:
        times = []
        if self.pending is not None and not self.pending.answered:
            times.append(self.pending.deadline)
        if self._ring_is_due():
            times.append(self.ring_deadline)
        if self._starts_later():
            times.append(self.start_at)
        if self.pressed_until:
            times.append(self.pressed_until)
        if self.ways_at < inf:
            times.append(self.ways_at)
        if self.archive == "failed":
            times.append(self.archive_at)
        return times


def _adopted(one: AdoptedTrainer) -> Trainer:
    said = one.said
    if said.fingerprint is None:
        phase = "waiting" if said.waiting else "starting"
    elif said.released:
        phase = "released"
    else:
        phase = "active" if one.used else "ready"
    prints = said.fingerprint or {}
    return Trainer(one.left.child, one.left.pid, phase, prints, judged=said.judged)


def _status(status: int | None) -> str:
    if status is None:
        return "a status that is not known"
    return f"exit status {status}" if status >= 0 else f"signal {-status}"
