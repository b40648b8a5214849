"""Scripts that are killed behind their loop: all steps are done, and what stands there is not.

No step is to blame for it, and the other members have left, or will. A new process runs on that
node what stands behind the loop, in a world of its own that has no step left to do.
"""

from __future__ import annotations

from elasticd.core.leading.office import Office
from elasticd.core.leading.roster import HOLDING
from elasticd.core.words.records import World
from elasticd.core.words.worlds import Fault
from elasticd.types import NodeId

_MOST_WORLDS = 5
"""After so many in which a script was killed there the job has failed. Before each but the first
there is a pause, each twice as long as the one before: what kills from outside may go away."""


def count(office: Office, fault: Fault) -> str | None:
    """Take in what may be the death of a trainer behind its last step. Why the job can't go on, or
    nothing; None where a step may be to blame.

    Who was not told to leave the loop may have done so with ``break``. Whether it has is known when
    that step turns out to be the last.
    """
    course, world, node = office.course, office.world, fault.culprit
    if world is None or world.generation != fault.generation:
        return None
    killed = fault.status is not None and fault.status < 0
    left = node in course.leaving
    if killed:
        course.ends.killed(node, course.committed)
    if not left and not (killed and office.all_committed):
        return None
    return _count_killed(office, world, fault, left=left) if killed else ""


def _count_killed(office: Office, world: World, fault: Fault, *, left: bool) -> str:
    times = office.course.ends.killed_behind(world.generation)
    if left:  # It breaks no world, so nothing else tells of it.
        text = f"the script was killed behind its loop: {fault.evidence}"
        at = office.ctx.now - fault.age_seconds
        office.account.tell(fault.culprit, fault.fault, text, world, at)
    if times >= _MOST_WORLDS:
        return f"the script dies behind its last step, {times} times by now; {fault.evidence}"
    if times > 1:
        office.tries.rest(office.tries.pause(times - 1))
    return ""


def owing(office: Office) -> list[NodeId]:
    """Nodes on which what stands behind the loop is still to be run."""
    owing = _owing(office)
    return office.wishes.without_unwanted(n for n in office.view.members if n in owing)


def _owing(office: Office) -> set[NodeId]:
    """Be they here or not."""
    return office.course.ends.owing(office.last_step) if office.stored_last else set()


def may_begin(office: Office) -> bool:
    """Whether that can be begun: nobody is in the last world any more. On another side of a cut
    some may be in a world that counts for nothing."""
    roster, world = office.roster, office.world
    there = [
        node
        for node in roster.trainers(*HOLDING, "released")
        if world is not None and node in world.members and roster.is_here(node, world)
    ]
    return bool(owing(office)) and not there


def lacking(office: Office) -> str:
    """What the end of a finished job lacks, as far as anybody knows, or nothing."""
    world = office.world
    if world is None:
        return ""
    nodes = office.course.ends.lacking(world.members, _owing(office))
    if not nodes:
        return ""
    named = ", ".join(f"{n} (main)" if n == world.members[0] else n for n in nodes)
    return (
        f"the script was not seen to come to its end on {named}: what it writes behind its loop may"
        " be missing there"
    )
