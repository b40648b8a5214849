"""The leader's account of one job's faults: what speaks against whom, and what recoveries cost."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import get_args

from elasticd.core.context import Context
from elasticd.core.words.records import World
from elasticd.recovery import faults, restore
from elasticd.types import JobId, NodeId, Rung

FRUITLESS_LIMIT = 8
"""After this many recoveries without one committed step between them a job rests before every
further try."""

_AGAIN_STEPS = 64
"""Where nobody knows how far a job had come: so many steps beyond all that is known are new."""

_DEARER: tuple[Rung | None, ...] = (None, *get_args(Rung))


@dataclass(slots=True)
class Recovery:
    """From the first evidence to the next committed step."""

    since: float
    detected: float
    before: int
    pieces: list[faults.Evidence] = field(default_factory=list)
    counted: bool = False
    rung: Rung | None = None
    """The dearest one of the worlds that it took."""
    lost: int = 0
    trained_until: float = 0.0
    """The world that is recovered from made steps until then, though it was given up."""

    def climb(self, rung: Rung, step: int) -> None:
        """A world was planned for it that starts from ``step``."""
        self.rung = max((self.rung, rung), key=_DEARER.index)
        self.lost = max(self.lost, self.before - step)

    def has(self, *kinds: str) -> bool:
        """Whether any evidence is of these faults."""
        return any(piece.fault in kinds for piece in self.pieces)


@dataclass(slots=True)
class Account:
    """Of one job, while its driver lives. Worlds carry the totals to later leaders."""

    ctx: Context
    job: JobId
    recovery: Recovery | None = None
    recoveries: int = 0
    lost_steps: int = 0
    fruitless: int = 0
    rested: int = 0
    """At which of these it has rested."""
    furthest: int = 0
    """The newest step that was ever committed: doing again what a restore lost is no progress."""
    unsure: bool = False
    """More may have been: nobody is left who was there. Only what is stored is progress then, or
    lies far beyond it."""
    began_at: float = 0.0
    """When the leader began with the job."""
    resumes: bool = False
    """The next world goes on from where the job was paused: that is no recovery."""

    @property
    def pieces(self) -> list[faults.Evidence]:
        """The evidence on which no plan was made yet."""
        return self.recovery.pieces if self.recovery is not None else []

    @property
    def since(self) -> float:
        """When what is being recovered from was first seen; else when the leader began."""
        return self.recovery.since if self.recovery is not None else self.began_at

    def resume(self) -> None:
        """The next world goes on from where the job was paused: whoever had it resumed may have
        mended what it had come to nothing for."""
        self.resumes, self.fruitless = True, 0

    def settled(self) -> None:
        """The next world is made."""
        self.resumes = False

    def adopt(self, world: World) -> None:
        """What earlier leaders counted."""
        self.recoveries = max(self.recoveries, world.recoveries)
        self.lost_steps = max(self.lost_steps, world.lost_steps)
        self.fruitless = max(self.fruitless, world.fruitless)
        self.furthest = max(self.furthest, world.furthest, world.step)

    def found(self, committed: int, stored: int, *, unsure: bool) -> None:
        """The world that was adopted has come to ``committed``, ``stored`` being the step of the
        newest checkpoint. ``unsure``: nobody is left who was there."""
        self.unsure = unsure
        self._progressed(committed, stored)

    def _progressed(self, committed: int, stored: int) -> bool:
        """Whether that is beyond all that was ever committed: then nothing was in vain."""
        sure = not self.unsure or committed > self.furthest + _AGAIN_STEPS
        if (committed if sure else stored) <= self.furthest:
            return False
        self.furthest, self.fruitless, self.rested = max(committed, stored), 0, 0
        return True

    def add(self, piece: faults.Evidence, committed: int) -> None:
        """Take in evidence; it opens a recovery if there is none."""
        if self.recovery is None:
            self.recovery = Recovery(piece.seen_seconds, self.ctx.now, committed)
        self.recovery.since = min(self.recovery.since, piece.seen_seconds)
        self.recovery.pieces.append(piece)

    def count(self) -> None:
        """The evidence breaks a world."""
        if self.recovery is not None and not self.recovery.counted:
            self.recovery.counted = True
            self.recoveries += 1

    def trained(self, until: float) -> None:
        """What is recovered from made steps until then."""
        if self.recovery is not None:
            self.recovery.trained_until = until

    def given_up(self) -> None:
        """The job ends. What broke last, for which no world was planned, was never recovered
        from."""
        if self.recovery is not None and self.recovery.counted and self.recovery.rung is None:
            self.recovery.counted = False
            self.recoveries -= 1

    @property
    def tired(self) -> int:
        """By how many fruitless recoveries the limit is exceeded, if it has not rested since the
        last of them; else 0."""
        exceeded = self.fruitless > max(FRUITLESS_LIMIT, self.rested)
        return self.fruitless - FRUITLESS_LIMIT if exceeded else 0

    def rest(self) -> None:
        """The job rests after the last of them."""
        self.rested = self.fruitless

    def planned_in_vain(self) -> None:
        """One more recovery is fruitless until a step is committed."""
        self.fruitless += 1

    def tell(self, node: NodeId, fault: str, reason: str, world: World, since: float) -> None:
        """Of a fault that breaks nothing; ``since``: when the first sign of it was seen."""
        self.ctx.emit(
            "fault_detected",
            f"{fault} on {node}: {reason}",
            self.job,
            world.generation.counter,
            fault=fault,
            rank=world.members.index(node),
            culprit=node,
            evidence=[reason],
            seconds_to_detect=round(max(0.0, self.ctx.now - since), 4),
        )

    def open_restore(self, committed: int) -> None:
        """A state comes back from disk though nobody saw anything break."""
        self.recovery = Recovery(self.began_at, self.began_at, committed, counted=True)
        self.recoveries += 1

    def planned(self, rung: Rung, step: int, lost: int) -> None:
        """A world starts from ``step`` and gives up ``lost`` committed steps."""
        self.furthest = max(self.furthest, step)
        if self.recovery is None:
            self.lost_steps += lost
            return
        # A world may be planned again that never formed: what it gives up is lost once.
        before = self.recovery.lost
        self.recovery.climb(rung, step)
        self.recovery.lost = max(self.recovery.lost, lost)
        self.lost_steps += self.recovery.lost - before

    def evidence(self) -> str:
        """The last of the evidence, in one line."""
        return "; ".join(f"{p.culprit}: {p.text}" for p in self.pieces[-4:])

    def diagnose(self, resume: restore.Resume, world: World | None, again: str = "") -> None:
        """Say what broke, from where it goes on, and what has happened ``again``."""
        if not self.pieces:
            return
        self.tell_faults(world)
        self.ctx.emit(
            "recovery_started",
            "; ".join(filter(None, (resume.reason, again))),
            self.job,
            world.generation.counter if world is not None else None,
            resume_step=resume.point.step,
        )

    def tell_faults(self, world: World | None) -> None:
        """Say what broke, of what was not told yet."""
        recovery = self.recovery
        if recovery is None or not recovery.pieces:
            return
        ranks: Collection[NodeId] = world.members if world is not None else ()
        generation = world.generation.counter if world is not None else None
        for found in faults.classify(recovery.pieces):
            rank = list(ranks).index(found.culprit) if found.culprit in ranks else None
            seen = min(p.seen_seconds for p in recovery.pieces)
            ago = self.ctx.now - self.ctx.wall
            self.ctx.emit(
                "fault_detected",
                f"{found.fault} on {found.culprit}: {found.evidence[0]}",
                self.job,
                generation,
                fault=found.fault,
                sign=found.sign,
                rank=rank,
                culprit=found.culprit,
                evidence=list(found.evidence),
                confidence=found.confidence,
                seconds_to_detect=round(max(0.0, recovery.detected - seen), 4),
                evidence_time=round(seen - ago, 4),
                detected_time=round(recovery.detected - ago, 4),
            )
        recovery.pieces.clear()

    def close(self, world: World, committed: int, stored: int = 0) -> None:
        """A step is committed in ``world``, or none is left to do. ``stored``: the step of the
        newest checkpoint."""
        if self._progressed(committed, stored):
            self.unsure = False
        recovery, self.recovery = self.recovery, None
        if recovery is None or not recovery.counted:
            return
        seconds = self.ctx.now - max(recovery.since, recovery.trained_until)
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
