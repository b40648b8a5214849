"""What a job gives up for want of memory, as its leader keeps and tells it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from elasticd.core.context import Context
from elasticd.core.words.records import World
from elasticd.recovery import faults
from elasticd.recovery import relief as levels
from elasticd.settings.job import BatchTable
from elasticd.types import JobId


@dataclass(slots=True)
class Relief:
    """Of one job, while its driver lives."""

    ctx: Context
    job: JobId
    batch: BatchTable
    level: int
    """With which the next world is formed; it only grows."""
    raised_at: int = -1
    """The committed step at which it last grew."""
    foreseen: str = ""
    """Why memory will run short somewhere, so that the next world is to need less."""

    def cut(self, level: int | None = None) -> levels.Cut:
        """The grains of a global batch at a level of relief, or at ours."""
        return levels.cut(
            self.batch.global_, self.batch.micro, self.level if level is None else level
        )

    @property
    def rounds(self) -> bool:
        """Whether the grain is halved, so that sums are rounded in another way."""
        return self.level > levels.RECOMPUTE_LEVEL

    def give_up(self, pieces: Sequence[faults.Evidence], committed: int, least_micro: int) -> str:
        """Memory was short: raise the level, if there is something left. Says what, or nothing.

        Args:
            pieces: the evidence of want of memory.
            committed: the last committed step.
            least_micro: samples of the smallest grain that every member can compute.
        """
        batch, before = self.batch, self.level
        last = levels.last_level(batch.global_, batch.micro, least_micro)
        if not pieces or before >= last:
            return ""
        shortages = [levels.shortage_of(piece.text) for piece in pieces]
        again = self.raised_at == committed
        return self._raise_to(levels.next_level(before, last, shortages, again), committed)

    @property
    def can_help(self) -> bool:
        """Whether memory will be short, and something is left whose loss changes no bit."""
        return bool(self.foreseen) and self.level < levels.RECOMPUTE_LEVEL

    def give_up_in_time(self, committed: int) -> str:
        """If memory will be short, give up what changes no bit. Says what, or nothing."""
        helps, why, self.foreseen = self.can_help, self.foreseen, ""
        return f"{why}: {self._raise_to(levels.RECOMPUTE_LEVEL, committed)}" if helps else ""

    def _raise_to(self, level: int, committed: int) -> str:
        before, self.level, self.raised_at = self.level, level, committed
        return levels.describe(self.batch.global_, self.batch.micro, before, level)

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
