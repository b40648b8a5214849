"""Scripts that are killed behind their loop: all steps are done, and what stands there is not.

No step is to blame for it, and the other members have left, or will. A new process runs on that
node what stands behind the loop, in a world of its own that has no step left to do.
"""

from __future__ import annotations

from elasticd.core.leading.office import Office
from elasticd.core.leading.roster import HOLDING
from elasticd.core.words.worlds import Fault
from elasticd.types import NodeId

_MOST_WORLDS = 5
"""After so many in which a script was killed there the job has failed. Before each but the first
there is a pause, each twice as long as the one before: what kills from outside may go away."""


def was_killed(office: Office, fault: Fault) -> str:
    """Take in that a trainer was ended by a signal, if it was told to leave its loop. Why the job
    can't go on, or nothing."""
    world, node = office.world, fault.culprit
    killed = fault.status is not None and fault.status < 0
    if world is None or not killed or not has_left(office, fault):
        return ""
    times = office.course.killed(node)
    text = f"the script was killed behind its loop: {fault.evidence}"
    office.account.tell(node, fault.fault, text, world, office.ctx.now - fault.age_seconds)
    if times >= _MOST_WORLDS:
        return f"the script dies behind its loop, {times} times by now; {fault.evidence}"
    if times > 1:
        office.tries.rest(office.tries.pause(times - 1))
    return ""


def has_left(office: Office, fault: Fault) -> bool:
    """Whether that trainer was told to leave the loop of the last world, so that no step has ended
    it."""
    here = office.course.runs(fault.generation)
    return here and fault.culprit in office.course.leaving


def owing(office: Office) -> list[NodeId]:
    """Nodes on which what stands behind the loop is still to be run."""
    killed = office.course.killed_behind & {*office.view.members}
    return office.wishes.without_unwanted(sorted(killed))


def may_begin(office: Office) -> bool:
    """Whether that can be begun: nobody is in the last world any more."""
    return bool(owing(office)) and not office.roster.trainers(*HOLDING, "released")
