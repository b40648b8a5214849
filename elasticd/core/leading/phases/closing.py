"""All steps are done: the last state is stored, and then the members leave. So a job ends.

Who leads when some have left already may find no whole world. So whether the job is over is asked
in every phase (:func:`is_over`), and who may leave is known whatever breaks (``Course.leaving``).
"""

from __future__ import annotations

from dataclasses import dataclass

from elasticd.core.leading import behind
from elasticd.core.leading.office import Office
from elasticd.core.leading.phases.moves import Blames, Outcome, Rest, ToFreezing, ToWaiting
from elasticd.core.leading.phases.whole import Whole
from elasticd.core.words.worlds import Release


@dataclass(slots=True)
class Closing(Whole):
    """Until the job is over, or what is stored needs its members once more."""

    def go_on(self) -> Blames | Rest | Outcome | ToFreezing | ToWaiting | None:
        """Let go who may leave, and see to the last state."""
        self._release()
        if behind.may_begin(self.office):
            nodes = ", ".join(behind.owing(self.office))
            return ToWaiting(f"what stands behind the script's loop is run again on {nodes}")
        return self.look()

    def _release(self) -> None:
        """Let the members leave once the last step's checkpoint is consistent."""
        office, newest = self.office, self.office.newest
        if newest is None or not office.stored_last:
            return
        for node in office.roster.trainers("finished"):
            if node not in office.course.released and office.roster.is_here(node, self.world):
                office.course.release(node)
                office.ctx.send(node, Release(office.job, newest.generation))


def failed_behind(office: Office) -> str:
    """Why a job whose last state is stored has failed all the same: a script that breaks out of its
    loop, and raises behind it, does so before anybody has agreed on the last step, and looks as if
    it raised in the loop. Nothing if none has."""
    if not office.stored_last:
        return ""
    return office.fitness.raised_behind(office.last_step)


def is_over(office: Office, since: float) -> bool:
    """Whether the last step's checkpoint is consistent, and all members have left, by the end of
    their scripts. ``since``: when the leader began to wait for those that are silent."""
    newest, world = office.newest, office.world
    if newest is None or not office.stored_last:
        return False
    same = world is not None and world.lineage == newest.lineage
    active = office.roster.trainers("active")
    training = [n for n in active if world is not None and same and n in world.members]
    left = office.roster.trainers("done") and not office.roster.trainers("finished", "released")
    over = bool(left) and not training and not behind.owing(office)
    return over and not office.silent(since)
