"""A leader of three nodes with one job, and what its members say: built by hand, no node runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from elasticd.checkpoints.manifest import Manifest, Shard
from elasticd.core.context import Context
from elasticd.core.leading.leader import Driver
from elasticd.core.words.effects import Emit, Send
from elasticd.core.words.records import JobRecord, TrainerStatus, View, World
from elasticd.core.words.ring import Listening
from elasticd.core.words.worlds import (
    Fault,
    Form,
    Freeze,
    Holding,
    MemberStatus,
    Progress,
    Ready,
)
from elasticd.settings.job import JobSpec
from elasticd.types import JobId, Lineage, NodeId, Point, Sign, Stamp, Tag, TrainerPhase, WorkPhase

ME, A, B, C = (NodeId(name) for name in ("me", "a", "b", "c"))
JOB, LINE, STAMP = JobId("job-1-abcd"), Lineage("11"), Stamp("ab" * 16)
EPOCH, GENERATION = Tag(1, ME, "v"), Tag(2, A, "x")
STEPS = 100


def spec_of(least: int = 1, most: int = 0) -> JobSpec:
    """A job of 100 steps of 8 samples, each a grain."""
    return JobSpec.from_dict(
        {
            "job": {"name": "job", "entrypoint": "train.py"},
            "batch": {"global": 8, "micro": 1},
            "train": {"steps": STEPS},
            "world": {"min": least, **({"max": most} if most else {})},
        }
    )


def point_of(step: int, lineage: Lineage = LINE) -> Point:
    """The state after a step."""
    return Point(lineage, step, Stamp(f"{step:032x}"))


def world_of(*members: NodeId, generation: Tag = GENERATION, step: int = 0) -> World:
    """A world that an earlier leader has made; all of its members kept their state."""
    share = tuple(((i, i + 1),) for i in range(len(members)))
    return World(
        job=JOB, generation=generation, epoch=EPOCH, lineage=LINE, parent=None, step=step,
        stamp=point_of(step).stamp, members=members, sources=("keep",) * len(members),
        hosts=("",) * len(members), shares_now=share, shares=share, rung="regroup", reason="",
        recoveries=0, lost_steps=0, exact=True, checkpointed=-1, manifest=None, holders=(),
    )  # fmt: skip


def status_of(
    phase: TrainerPhase | None, world: World | None = None, committed: int = 0
) -> MemberStatus:
    """A member whose trainer is in ``phase``; in a world it is ready."""
    trainer = TrainerStatus(phase, 7, {}, None, True) if phase else None
    return MemberStatus(
        epoch=EPOCH, job=JOB, trainer=trainer, trouble="", hopeless=False, fatal="", world=world,
        formed=world is not None, ready=world is not None and phase == "active", faults=(),
        committed=committed, warm=True, reducer_pid=None, counter=1, stored=(),
    )  # fmt: skip


def holds(point: Point | None, entered: Tag | None = None, **more: Any) -> Holding:
    """What a member says that it holds."""
    return replace(
        Holding(EPOCH, JOB, "", able=True, point=point, entered=entered, committed=0, host="",
                counter=1),
        **more,
    )  # fmt: skip


def manifest_of(step: int, *holders: NodeId, lineage: Lineage = LINE) -> Manifest:
    """A checkpoint of one shard."""
    point = point_of(step, lineage)
    return Manifest(
        job=JOB, lineage=lineage, parent=None, step=step, stamp=point.stamp, generation=GENERATION,
        samples=8 * step, micro=1, count=1, shards=(Shard(0, 100, "0" * 64),), holders=(holders,),
        digest="0" * 64, created_seconds=0.0,
    )  # fmt: skip


class Bench:
    """The driver on ``me``, who trains nothing; ``sent`` and ``told`` take what is new."""

    def __init__(
        self, *members: NodeId, least: int = 1, most: int = 0, strict: bool = False, **record: Any
    ) -> None:
        names: Iterator[str] = (f"{n:04x}" for n in range(1000))
        self.ctx = Context(ME, lambda: next(names), now=50.0, strict=strict)
        self.members = members or (A, B, C)
        spec = spec_of(least, most).to_dict()
        self.record = JobRecord(JOB, 1, spec, "digest", "running", **record)
        self.driver = Driver.of(self.ctx, self.record, View(EPOCH, self.members))
        self.office = self.driver.office

    @property
    def phase(self) -> str:
        """The name of the phase."""
        return type(self.driver.stage.phase).__name__.lower()

    @property
    def why(self) -> str:
        """What it waits for."""
        return self.driver.stage.phase.why

    def sent(self, kind: type[Any]) -> list[tuple[NodeId, Any]]:
        """Messages of a kind, to whom; they are taken out."""
        found = [f for f in self.ctx.effects if isinstance(f, Send) and isinstance(f.message, kind)]
        self.ctx.effects = [f for f in self.ctx.effects if f not in found]
        return [(f.to, f.message) for f in found]

    def told(self, kind: str) -> list[Emit]:
        """Events of a kind."""
        return [f for f in self.ctx.effects if isinstance(f, Emit) and f.kind == kind]

    def pass_time(self, seconds: float) -> None:
        """Nothing is heard for so long."""
        self.ctx.now += seconds
        self.driver.tick()

    def say(
        self, phase: TrainerPhase = "ready", world: World | None = None, *nodes: NodeId
    ) -> None:
        """Members tell how they are, all unless some are named."""
        for node in nodes or self.members:
            self.driver.hear(node, status_of(phase, world))

    def hold_nothing(self) -> None:
        """All who are asked answer that they hold no state."""
        for node, freeze in self.sent(Freeze):
            self.driver.hear(node, replace(holds(None), serial=freeze.serial))

    def adopt(self, *members: NodeId, step: int = 0) -> World:
        """A whole world of an earlier leader."""
        world = world_of(*(members or self.members), step=step)
        for node in self.members:
            inside = node in world.members
            told = status_of("active", world) if inside else status_of("ready")
            self.driver.hear(node, told)
        return world

    def progress(
        self, world: World, step: int, *nodes: NodeId, phase: WorkPhase = "compute"
    ) -> None:
        """Members have committed a step."""
        for node in nodes or world.members:
            told = Progress(JOB, world.generation, step, STAMP, step, 0.5, phase, 1.0, 0, {})
            self.driver.hear(node, told)

    def answer(self, **held: Holding) -> None:
        """Those who were asked say what they hold."""
        for node, freeze in self.sent(Freeze):
            self.driver.hear(node, replace(held[node], serial=freeze.serial))

    def form(self) -> World:
        """All members of the world that is ordered come up."""
        orders = self.sent(Form)
        world: World = orders[0][1].world
        for node, _ in orders:
            self.driver.hear(node, Listening(JOB, world.generation))
        for node, _ in orders:
            self.driver.hear(node, Ready(JOB, world.generation))
        return world


def fault(
    world: World, culprit: NodeId, kind: Sign = "worker_exit", text: str = "it died"
) -> Fault:
    return Fault(JOB, world.generation, culprit, kind, text)


def started(bench: Bench) -> World:
    """The members have started the job together, and a step is committed."""
    bench.say("ready")
    bench.answer(**{node: holds(None) for node in bench.members})
    world = bench.form()
    bench.say("active", world)
    bench.progress(world, 1)
    return world
