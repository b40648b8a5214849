"""Which nodes a job goes on without: where its script fails, or builds another model or data.

What others have come to says whether it is the node's doing or the script's. A script that fails
before its ``Run`` while another node's has come there, or in the loop while others compute the same
step, fails because of its node. One that fails everywhere ends the job.
"""

from __future__ import annotations

from collections.abc import Iterable

from elasticd.core.leading.office import Office
from elasticd.core.leading.phases.moves import Outcome
from elasticd.core.words.worlds import Failing
from elasticd.recovery.fitness import Unfit
from elasticd.types import NodeId

_AT_RUN = ("ready", "active", "finished", "released", "done")
"""Phases of trainers whose script has come to its ``Run``."""


def leave_out(
    office: Office, node: NodeId, reason: str, *, looping: bool = False, unlike: bool = False
) -> Outcome | None:
    """Let the job go on without ``node``, for this reason; or end, if that leaves too few.

    Nodes that are away or drained count: they come back. Nodes that were left out before the job
    made its last steps get another try rather than that the job ends. So does who computes
    something else than the others (``unlike``), once: nobody knows yet who has computed wrongly.
    """
    fitness, failing = office.fitness, failing_nodes(office)
    if node in fitness.left_out:
        return None
    without, spared = {node, *failing} | fitness.left_out, frozenset[NodeId]()
    found = fitness.counted(Unfit(node, 0, reason, office.course.committed, looping, unlike))
    if _too_few(office, without):
        spared = fitness.second_chances(office.course.committed)
        if unlike and not found.is_unlike_always and _too_few(office, without - spared):
            spared |= {node}
        if _too_few(office, without - spared):
            return Outcome("failed", reason)
    fitness.leave_out(found)
    fitness.try_again(spared)
    return None


def judge(office: Office) -> Outcome | None:
    """What becomes of nodes on which the job's script fails."""
    failing, fitness = failing_nodes(office), office.fitness
    bad = {*failing} | fitness.left_out
    waits = False
    for node, found in failing.items():
        if found.looping:
            stumbled = {*fitness.stumbled(office.course.committed)}
            stumbled |= {n for n, f in failing.items() if f.looping}
            ends = bool(stumbled - {node})
        elif ends := not (came := _came_elsewhere(office, failing)):
            waits = True
            if not _too_few(office, bad) and _may_yet_work(office, node):
                continue
        else:
            fitness.serve(came)  # they may be away when the others know who is left out
        if ends and not may_run_elsewhere(office, bad):
            return Outcome("failed", found.reason)
        if (end := leave_out(office, node, found.reason, looping=found.looping)) is not None:
            return end
    if not waits:
        fitness.knows()
    return None


def may_run_elsewhere(office: Office, bad: Iterable[NodeId]) -> tuple[NodeId, ...]:
    """Who is away and may train, so that this side doesn't end the job for the ``bad`` nodes that
    it has: as many at least. None of these if they are fewer, or too few for a world."""
    here = {*office.view.members}
    away = _known(office) - here - {*bad}
    enough = max(office.least, len(here & {*bad}))
    return tuple(sorted(away)) if len(away) >= enough else ()


def leave_out_odd(office: Office, members: Iterable[NodeId], trained: Iterable[NodeId]) -> None:
    """Whoever has another fingerprint than those who train."""
    members = tuple(members)
    for node, reason in office.roster.odd((*members, *trained), trained).items():
        if node in members:
            leave_out(office, node, reason)


def try_unlike_again(office: Office) -> None:
    """Nobody trains any more from whom those could differ that were left out for that: whoever is
    there begins again from a checkpoint."""
    office.fitness.try_again(office.fitness.unlike & {*office.view.members})


def failing_nodes(office: Office) -> dict[NodeId, Failing]:
    """Where the job's script fails, since the node was last tried."""
    fitness = office.fitness
    return {
        node: status.failing
        for node, status in sorted(office.statuses.items())
        if status.failing is not None
        and node not in fitness.left_out
        and status.tried >= fitness.turn_of(node)
    }


def _too_few(office: Office, without: Iterable[NodeId]) -> bool:
    """Whether no world could ever be made without these."""
    return len(_known(office) - set(without)) < max(1, office.least)


def _known(office: Office) -> set[NodeId]:
    """All that may take part, be they away now."""
    return {*office.view.members, *office.wishes.away} - office.wishes.standing.idle


def _came_elsewhere(office: Office, failing: Iterable[NodeId]) -> set[NodeId]:
    """On which other nodes the script has come to its ``Run``; on those that are away or drained,
    too."""
    bad = {*failing} | office.fitness.left_out
    members = office.world.members if office.world is not None else ()
    here = {*office.view.members} - office.wishes.unwanted
    away = {*members, *office.fitness.served} - here
    return ({*office.roster.trainers(*_AT_RUN)} | away) - bad


def _may_yet_work(office: Office, node: NodeId) -> bool:
    """Whether the script still runs towards its ``Run`` elsewhere, or will once what holds it up is
    over; for a while that is waited for."""
    roster = office.roster
    starting = office.wishes.without_unwanted([*roster.unsettled(), *roster.held_up()])
    return bool({*starting} - {node}) and office.fitness.may_wait()
