"""What a trainer writes to the node's disk and tells of its states, and how long that takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from elasticd.core.words.trainers import TrainerDigest, TrainerSkipped, TrainerWrote, WrittenShard
from elasticd.train.states.meeting import Meeting
from elasticd.train.world import TrainerWorld
from elasticd.types import Point

from .byrank import parts, variant
from .disk import SPOILT, DiskFull, OwnShards

if TYPE_CHECKING:
    from .trainer import Trainer

_REWRITE_SECONDS = 5.0


def state_digest(step: int, spoilt: bool, seen: str = "", drift: str = "") -> str:
    """Of a state to which calls of run.on_main have led that returned what was ``seen``."""
    return f"{SPOILT if spoilt else '0'}{drift:0>8}{step:039x}{seen:0>16}"


@dataclass(frozen=True, slots=True)
class Task:
    """A state to be written, as it is now."""

    world: TrainerWorld
    point: Point
    spoilt: bool
    must: bool
    seen: str
    """What calls of run.on_main have returned that led to it."""
    drift: str
    variant: int = 0
    """What the script keeps by rank."""

    @property
    def indices(self) -> list[int]:
        return self.world.writes.shards_of(self.world.rank, self.world.size)

    @property
    def count(self) -> int:
        return self.world.writes.count


class Writer:
    """One checkpoint at a time, and those that must be."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer, self._chance = trainer, trainer.chance("shards")
        self._meeting = Meeting()
        self._busy = False

    def submit(self, task: Task) -> None:
        """Write this member's shards."""
        step = task.point.step
        if self._busy and not task.must:
            self._meeting.miss()
            self._skip(task, "late", refused=False)
            return
        interval = task.world.writes.every_at(step)
        if self._meeting.leaves_out(step, interval) and not task.must:
            self._skip(task, "not its turn", refused=False)
            return
        self._meeting.begin()
        self._busy = True
        self._after(0.005, 0.05, lambda: self._write(task))

    def _after(self, least: float, most: float, action: Callable[[], None]) -> None:
        self._trainer.later(self._chance.uniform(least, most), action)

    def _write(self, task: Task, again: bool = False) -> None:
        disk = self._trainer.host.disk
        try:
            disk.write(self._own(task))
        except DiskFull as error:
            if not again:  # the reason is the same as before
                self._skip(task, str(error), refused=True)
            self._busy = task.must
            if task.must:
                # Nobody else will write it: it is tried again until there is room.
                self._trainer.later(_REWRITE_SECONDS, lambda: self._write(task, again=True))
            return
        host = self._trainer.host
        slow = disk.sync_seconds + host.cluster.write_seconds_of(host.name)
        self._after(slow + 0.005, slow + 0.1, lambda: self._sync(task))

    def _sync(self, task: Task) -> None:
        self._busy = False
        trainer, point, spoilt = self._trainer, task.point, task.spoilt
        indices, variant = task.indices, task.variant
        rows = trainer.host.disk.sync(self._own(task))
        digest = state_digest(point.step, spoilt, task.seen, task.drift)
        generation = task.world.generation
        cluster = trainer.host.cluster
        cluster.checkers.by_rank.tells(trainer.job, generation, point.step, variant, cluster.now)
        trainer.say(
            TrainerWrote(
                **_named(task),
                shards=tuple(WrittenShard(*row) for row in rows),
                digest=digest if task.must or 0 in indices else "",
                check=f"{digest}{variant or ''}",
                parts=parts(digest, variant),
                stall_seconds=0.0,
                write_seconds=0.1,
            )
        )

    def _own(self, task: Task) -> OwnShards:
        job = self._trainer.job
        what = (task.spoilt, task.variant, task.seen, task.drift)
        return OwnShards(job, task.point, task.count, task.indices, *what)

    def _skip(self, task: Task, reason: str, *, refused: bool) -> None:
        checkers = self._trainer.host.cluster.checkers
        checkers.writers.skips(self._trainer, task.world.generation, task.point.step)
        self._trainer.say(TrainerSkipped(**_named(task), reason=reason, refused=refused))


def tell_and_store(trainer: Trainer, world: TrainerWorld, point: Point, seen: str) -> None:
    """Where it is due, tell what the state is like and write it; ``seen`` is what the calls of its
    body have returned."""
    cluster, recovery = trainer.cluster, trainer.spec.recovery
    kept = variant(cluster.shapes[trainer.job], trainer.host.name, point.step)
    every = recovery.verify_every
    if every and world.size > 1 and point.step % every == 0:
        digest = state_digest(point.step, trainer.spoilt, seen, trainer.drift)
        check = f"{digest}{kept or ''}"
        told = (world.generation, point.step, point.stamp, check, parts(digest, kept))
        trainer.say(TrainerDigest(*told))
    steps = trainer.spec.train.steps
    if world.checkpoint_due(point.step, steps):
        halt_step = trainer.protocol.visits.halting.step
        must = point.step in (world.ends_at(steps), world.point.step, halt_step)
        cluster.checkers.writers.writes(trainer, world.generation, point.step)
        cluster.checkers.stores(trainer, point, seen)
        task = Task(world, point, trainer.spoilt, must, seen, trainer.drift, kept)
        trainer.writer.submit(task)


def _named(task: Task) -> dict[str, Any]:
    """Which checkpoint of which world it is."""
    point = task.point
    return {
        "generation": task.world.generation,
        "lineage": point.lineage,
        "step": point.step,
        "stamp": point.stamp,
        "count": task.count,
    }
