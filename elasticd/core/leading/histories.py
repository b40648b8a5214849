"""What a job's leader decides and tells of its lineages: those that met, and those that open."""

from __future__ import annotations

from dataclasses import dataclass

from elasticd.core.context import Context
from elasticd.core.leading.planning import Start
from elasticd.core.words.records import World
from elasticd.recovery import lineages
from elasticd.types import JobId


@dataclass(slots=True)
class Histories:
    """Of one job, while its driver lives; the node writes ``left`` into the job's record."""

    ctx: Context
    job: JobId
    left: lineages.Left
    """Histories that met one that was further."""
    ran: lineages.Ran
    """Those that worlds turned away from, which nobody's last world tells of any more."""
    opening: Start | None = None
    """What the world that forms starts from."""

    def chosen(self, start: Start, ran: lineages.Ran) -> None:
        """Both histories stay to be seen in the events where lineages meet, or one begins.

        ``ran`` says how far each went that is known of now.
        """
        kept = start.resume.point.lineage
        self.ran = lineages.latest(self.ran, tuple(each for each in ran if each[0] != kept))
        for parting in start.parted:
            before = self.left
            self.left = lineages.merged(before, ((parting.left, parting.after),))
            if self.left != before:
                self.ctx.emit(
                    "lineages_met",
                    parting.reason,
                    self.job,
                    kept=parting.kept.lineage,
                    kept_step=parting.kept.step,
                    left=parting.left,
                    left_step=parting.step,
                    parent_step=parting.since,
                )
        self.opening = start

    def recall(self, left: lineages.Left, ran: lineages.Ran) -> None:
        """What the job's record has, beside ours."""
        self.left = lineages.merged(self.left, left)
        self.ran = lineages.latest(self.ran, ran)

    def entered(self, world: World) -> None:
        """All members are in the world that was formed from what was chosen."""
        start, self.opening = self.opening, None
        if start is not None and start.opened and start.resume.point.lineage == world.lineage:
            self.ctx.emit(
                "lineage_opened",
                start.opened,
                self.job,
                world.generation.counter,
                lineage=world.lineage,
                parent=start.origin.lineage if start.origin is not None else None,
                parent_step=world.step,
            )
