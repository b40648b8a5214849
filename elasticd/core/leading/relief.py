"""What a job gives up for want of memory, as its leader keeps and tells it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from elasticd.core.context import Context
from elasticd.core.words.records import World
from elasticd.recovery import faults
from elasticd.recovery import relief as levels
from elasticd.settings.job import BatchSettings
from elasticd.types import JobId, NodeId


@dataclass(frozen=True, slots=True)
class Raise:
    """A higher level of relief, and what is given up with it."""

    level: int
    text: str
    in_time: bool = False
    """Memory is not short yet."""


@dataclass(slots=True)
class Relief:
    """Of one job, while its driver lives."""

    ctx: Context
    job: JobId
    batch: BatchSettings
    level: int
    """With which the next world is formed; it grows until the operator has it given back."""
    turn: int = 0
    """How often the operator has."""
    raised_at: int = -1
    """The committed step at which it last grew."""
    foreseen: str = ""
    """Why memory will run short somewhere, so that the next world is to need less."""

    def adopt(self, world: World) -> None:
        """What is given up already."""
        self.recall(world.relief_turn, world.relief)

    def recall(self, turn: int, level: int) -> None:
        """A record, or a world, may know more: the operator has had it given back, or an earlier
        leader has given up more."""
        if turn > self.turn:
            self.raised_at, self.foreseen = -1, ""
        self.turn, self.level = max((self.turn, self.level), (turn, level))

    def gives_back(self, world: World | None) -> bool:
        """Whether the next world does without relief that ``world`` had."""
        return world is not None and world.relief_turn < self.turn and world.relief > self.level

    def cut(self, level: int | None = None) -> levels.Cut:
        """The grains of a global batch at a level of relief, or at ours."""
        return levels.cut(
            self.batch.global_, self.batch.micro, self.level if level is None else level
        )

    @property
    def rounds(self) -> bool:
        """Whether the grain is halved, so that sums are rounded in another way."""
        return self.level > levels.RECOMPUTE_LEVEL

    def pressed(self, node: NodeId, reason: str) -> None:
        """A member foresees that its memory runs out: the whole job gives up more at the next
        step."""
        self.foreseen = f"on {node} {reason}"

    def suspect(self, why: str) -> None:
        """Want of memory may be behind faults that don't say so."""
        self.foreseen = self.foreseen or why

    def has_more(self, least_micro: int) -> bool:
        """Whether anything is left to give up, where grains have at least so many samples."""
        return self.level < levels.last_level(self.batch.global_, self.batch.micro, least_micro)

    def weigh(
        self, pieces: Sequence[faults.Evidence], committed: int, least_micro: int
    ) -> Raise | None:
        """What to give up if memory was short, or will be, and something is left.

        Args:
            pieces: evidence, of want of memory and of other faults.
            committed: the last committed step.
            least_micro: samples of the smallest grain that every member can compute.
        """
        last = levels.last_level(self.batch.global_, self.batch.micro, least_micro)
        shortages = [levels.shortage_of(piece.text) for piece in pieces if piece.fault == "oom"]
        if shortages and self.level < last:
            again = self.raised_at == committed
            level = levels.next_level(self.level, last, shortages, again)
            return Raise(level, self._describe(level))
        if self.can_help:
            level = levels.RECOMPUTE_LEVEL
            return Raise(level, f"{self.foreseen}: {self._describe(level)}", in_time=True)
        return None

    def _describe(self, level: int) -> str:
        return levels.describe(self.batch.global_, self.batch.micro, self.level, level)

    @property
    def can_help(self) -> bool:
        """Whether memory will be short, and something is left whose loss changes no bit."""
        return bool(self.foreseen) and self.level < levels.RECOMPUTE_LEVEL

    def settle(self, raised: Raise | None, committed: int) -> None:
        """A world is formed with what was weighed."""
        if raised is None or raised.in_time:
            self.foreseen = ""
        if raised is not None:
            self.level, self.raised_at = raised.level, committed

    def tell_given_back(self, world: World) -> None:
        """That the level was lowered from that of ``world``."""
        text = levels.describe_back(self.batch.global_, self.batch.micro, world.relief, self.level)
        generation = world.generation.counter
        self.ctx.emit("memory_given_back", text, self.job, generation, level=self.level)

    def tell(self, before: int, text: str, world: World | None) -> None:
        """That the level was raised from ``before``."""
        generation = world.generation.counter if world is not None else None
        was, now = self.cut(before).micro, self.cut().micro
        if was == now:
            self.ctx.emit("memory_relieved", text, self.job, generation, level=self.level)
            return
        self.ctx.emit(
            "batch_shrunk",
            text,
            self.job,
            generation,
            micro_before=was,
            micro_after=now,
            global_batch=self.batch.global_,
            level=self.level,
        )
