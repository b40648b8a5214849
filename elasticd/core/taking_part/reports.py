"""What a member tells the leader of its view, and tells again to the next one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from math import inf

from elasticd.checkpoints.manifest import Stored
from elasticd.checkpoints.tellable import tellable
from elasticd.core.context import Context
from elasticd.core.taking_part.told import ToldByMember
from elasticd.core.taking_part.trainers import Ending
from elasticd.core.words.effects import Reached
from elasticd.core.words.messages import Message
from elasticd.core.words.records import World
from elasticd.core.words.shards import Digest, ShardsFailed, ShardsWritten
from elasticd.core.words.worldlines import committed_before, shared_step
from elasticd.core.words.worlds import Failing, Fault, MemberStatus, Progress
from elasticd.recovery.faults import RING_FAULTS
from elasticd.types import Confidence, JobId, NodeId, Sign, Tag


@dataclass(slots=True)
class Reports:
    """Of one job."""

    ctx: Context
    job: JobId
    status: Callable[[Tag], MemberStatus]
    """How the member is, for a leader of that epoch."""
    leader: NodeId | None = None
    epoch: Tag | None = None
    world: World | None = None
    """The newest that this node was made a member of, also after it has left it."""
    faults: list[tuple[Sign, str]] = field(default_factory=list)
    """What speaks against the node there (fault, evidence), for a leader that comes later."""
    broken_at: float = -inf
    """When that world's ring broke."""
    committed: int = 0
    progress: Progress | None = None
    told: ToldByMember = field(default_factory=ToldByMember)
    stored: tuple[Stored, ...] = ()
    """Of what is on the disk here as many as are told of."""
    ways_at: float = inf
    """When the leader is to be told of links that changed."""
    tried: int = 0
    """The node's turn (elasticd/recovery/fitness.py) in which what runs here was begun."""
    silent: bool = False
    """The job has ended here: nobody is told of it any more."""

    def follow(self, epoch: Tag, trains: bool, calls: Iterable[Message] = ()) -> None:
        """A new view: tell its leader all we know; of ``calls`` before of how far we are, since who
        is further has given its results."""
        self.leader, self.epoch = epoch.leader, epoch
        self.report()
        for told in (*self.told.again(), *calls):
            self.tell(told)
        if trains and self.progress is not None:
            # A leader that has never heard of a phase can't see that it lasts too long.
            self.tell(self.progress)

    def begin_anew(self, turn: int) -> None:
        """What is told from now on is of this turn of the node."""
        self.tried = turn

    def report(self) -> None:
        """Tell the leader how the member is."""
        self.ways_at = inf
        if self.leader is not None and self.epoch is not None and not self.silent:
            self.ctx.send(self.leader, self.status(self.epoch))

    def gather(self) -> None:
        """Tell it soon, of several things at once."""
        self.ways_at = min(self.ways_at, self.ctx.now + self.ctx.timing.gather_seconds)

    def tell(self, message: Message) -> None:
        if self.leader is not None:
            self.ctx.send(self.leader, message)

    def note(self, fault: Sign, evidence: str) -> None:
        """Keep what speaks against the node for a leader to come."""
        self.faults.append((fault, evidence))

    def close(self) -> None:
        """The job has ended here."""
        self.silent, self.world = True, None

    def accuse(
        self,
        fault: Sign,
        evidence: str,
        *,
        kept: bool = True,
        fatal: str = "",
        failing: Failing | None = None,
        age_seconds: float = 0.0,
        confidence: Confidence = "",
        stranger_at: int = -1,
    ) -> None:
        """Tell the leader what happened here; ``kept``: and its successor, should it not live to
        act on it."""
        end = Ending(fault, evidence, fatal, failing, confidence, None, age_seconds, stranger_at)
        self.ended(end, kept)

    def ended(self, end: Ending, kept: bool) -> None:
        """Tell the leader how the trainer ended."""
        if kept:
            self.note(end.fault, end.evidence)
        if end.fault in RING_FAULTS:
            self.broken_at = self.ctx.now
        me, world = self.ctx.me, self.world
        generation = world.generation if world is not None else Tag(0, me, "")
        fault = Fault(
            self.job, generation, me, end.fault, end.evidence, end.fatal, end.status,
            end.age_seconds, end.confidence, end.failing, self.tried, end.stranger_at,
        )  # fmt: skip
        self.tell(fault)

    def enter(self, world: World, *, another: bool = False) -> None:
        """The member is in a newer world, in which nothing speaks against it yet. ``another``:
        with a trainer that was in none before."""
        if another:
            self.told.states.lost()
        old, self.world, self.faults, self.broken_at = self.world, world, [], -inf
        for told in self.told.enter(self.ctx.me, world):
            self.tell(told)
        self.progress = None
        # What was committed in another line says nothing of this one.
        ours = -1 if world.goes_back or old is None else shared_step(old, world)
        self.committed = int(max(committed_before(world), min(self.committed, ours)))

    def formed(self, world: World) -> None:
        """All members of the world have the state from which it goes on."""
        self._reaches(world.generation, world.step)

    def recall(
        self, stored: tuple[Stored, ...], world: World | None, reached: Iterable[Reached]
    ) -> None:
        """Take in what a daemon before this one has left on the disk: the job's checkpoints, its
        newest world, and what was seen committed there."""
        self.stored, self.world = tellable(stored), world
        if world is not None:
            self.told.states.recall(world)
        for each in reached:
            if world is not None and (each.job, each.generation) == (self.job, world.generation):
                self.committed = each.step

    def left(self) -> tuple[Reached, ...]:
        """What was seen committed in the newest world, for when the job comes back."""
        world = self.world
        return () if world is None else (Reached(self.job, world.generation, self.committed),)

    def trains(self, progress: Progress) -> None:
        """The trainer is so far in the newest world."""
        self.progress = progress
        self._reaches(progress.generation, progress.committed)
        self.tell(progress)

    def _reaches(self, generation: Tag, step: int) -> None:
        if step > self.committed:
            self.committed = step
            self.ctx.do(Reached(self.job, generation, step))

    def wrote(self, written: ShardsWritten) -> None:
        """Shards are durable here; of the same ones nothing else is any more."""
        world = self.world
        if world is not None and (world.lineage, world.last) == (written.lineage, written.step):
            written = replace(written, last=True)
        for told in self.told.wrote(written, world):
            self.tell(told)

    def shows(self, own: Digest) -> None:
        """What a state of the trainer is like."""
        if (told := self.told.states.hear(own, self.world)) is not None:
            self.tell(told)

    def skips(self, skipped: ShardsFailed) -> None:
        """Shards of a checkpoint are not written here."""
        self.told.shards.skips(skipped)
        self.tell(skipped)

    def on_stored(self, stored: tuple[Stored, ...]) -> None:
        """What is on this node's disk has changed."""
        self.stored = tellable(stored)
        self.told.shards.finished(stored)
        self.report()
