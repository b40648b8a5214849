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
    """Take in that a trainer was ended by a signal, if that may have been behind its loop. Why the
    job can't go on, or nothing.

    Who was not told to leave the loop may have done so with ``break``. Whether it has is known when
    that step turns out to be the last.
    """
    world, node, left = office.world, fault.culprit, has_left(office, fault)
    killed = fault.status is not None and fault.status < 0 and office.course.runs(fault.generation)
    if world is None or not killed or (office.all_committed and not left):
        return ""
    office.course.killed(node)
    if not left:
        return ""
    times = office.course.killed_behind()
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
    killed, here = office.course.killed_at, {*office.view.members}
    found = [node for node in sorted(killed) if killed[node] == office.last_step and node in here]
    return office.wishes.without_unwanted(found)


def may_begin(office: Office) -> bool:
    """Whether that can be begun: the last state is stored, and nobody is in a world any more."""
    return (
        office.stored_last
        and bool(owing(office))
        and not office.roster.trainers(*HOLDING, "released")
    )
