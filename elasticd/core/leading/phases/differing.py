"""A world whose members hold different states: who is to blame, and where all go on.

An odd one has added to the sums since all last agreed, so the majority's state isn't what it would
have been without it. Only a state on which all agreed is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from elasticd.core.leading.comparing import Differing
from elasticd.core.leading.office import Office
from elasticd.core.leading.phases.moves import Blame, Blames, Outcome, ToFreezing
from elasticd.core.words.records import World
from elasticd.core.words.worlds import Holding
from elasticd.recovery.divergence import Divergence, Unlike
from elasticd.types import NO_TAG, NodeId, Point, Tag

Left = Blames | Outcome | ToFreezing


def compared(office: Office, world: World) -> Left | None:
    """Members have told of their parameters; once all have told of the same step they are
    compared."""
    found = office.trust.states.compare(world)
    return None if found is None else _judge(office, found)


def left(office: Office, holdings: Mapping[NodeId, Holding], kept: Iterable[NodeId]) -> Left | None:
    """All have left their worlds, and have said what they hold; what they have told is all that
    there will be. ``kept``: these are to go on together with it."""
    worlds = sorted(office.roster.worlds(office.world), key=lambda world: world.generation)
    # Of those that have not answered it is known only in which world they were to take another's.
    since = {node: world.generation for world in worlds for node in world.takers}
    since |= {node: holding.entered or NO_TAG for node, holding in holdings.items()}
    found = office.trust.states.compare_left(worlds, since, kept)
    return None if found is None else _judge(office, found, holdings)


def _judge(office: Office, differing: Differing, asked: Iterable[NodeId] = ()) -> Left:
    world, found, told = differing.world, differing.found, differing.told
    return _leave(office, world, found, differing.point, told, found.odd, asked)


def contested(office: Office, world: World, step: int) -> Left | None:
    """Those who could write the state at which all rest have written different ones, and the rest
    won't tell. Where members compute different bits that holds for any state: none would ever be
    stored."""
    survey = office.checkpoints.survey
    checkpoint = survey.contested(step)
    if checkpoint is None and office.exactness.apart:
        checkpoint = survey.contested()
    if checkpoint is None or checkpoint.generation != world.generation:
        return None
    said, step = checkpoint.said, checkpoint.step
    odd = tuple(sorted(said.refused.union(said.outvoted()).intersection(world.members)))
    majority = bool(said.outvoted()) or not said.contested
    named = f": {', '.join(odd)}" if majority else ", no majority"
    text = f"parameters differ after step {step} among those who could write them{named}"
    found = Divergence(odd if majority else (), majority, text, said.unlike, said.models)
    told = dict.fromkeys(world.members, world.generation)
    return _leave(office, world, found, checkpoint.key.point, told, odd)


def disputed(office: Office, world: World) -> Blames | None:
    """A disk has the job's last state otherwise than all members: it takes no second one of that
    name, and nobody can complete what it has."""
    found = office.newest is not None and office.checkpoints.survey.disputed(office.last_step)
    if not found or not office.trust.distrust(world):
        return None
    step = office.course.committed
    text = f"parameters differ after step {step} from what a disk has, no majority"
    return Blames(tuple(Blame(node, "divergence", text) for node in world.members))


def _leave(
    office: Office,
    world: World,
    found: Divergence,
    point: Point,
    told: Mapping[NodeId, Tag],
    tainted: Iterable[NodeId],
    asked: Iterable[NodeId] = (),
) -> Left:
    """Go back to what all agreed on, or on with the majority's state. Neither helps where the
    script itself makes them differ. ``point``: the state that they have otherwise. ``told``: by
    whom that is known, each as of which world. ``tainted``: who is not to go on with what it holds.
    ``asked``: who else has left its world, be it in another one and further."""
    step = point.step
    office.trust.states.settle(world, told)
    if found.unlike is not None:
        return refused(office, world, found.unlike, step)
    if office.are_apart(found.models, step):
        office.trust.take_one(world)
        # The next world writes that one's: nothing may be made whole of the others' meanwhile.
        office.checkpoints.doubt(world.members, world.generation)
        nodes = {*told, *world.members, *asked} & {*office.view.members}
        text = f"members compute different bits after step {step}: all take the state of one"
        return ToFreezing(tuple(sorted(nodes)), text)
    office.trust.taint(tainted, world)
    # Of the line on which they differ, which may be another side's.
    agreed = office.checkpoints.survey.agreed(office.trust.states.agreed, step, world)
    if not found.majority and office.trust.states.split(step):
        return Outcome("failed", _why_always(office, world, found))
    if not found.majority and office.course.leaving:
        office.exactness.lose(
            f"{found.reason}; a member has ended with the last state, which stays"
        )
    elif not found.majority:
        _go_back(office, world, agreed or replace(point, step=step - 1), point)
        if agreed is None and (newest := office.newest) is not None and not newest.agreed:
            # Nobody can say that all had it alike: who differs now may have differed then.
            office.exactness.lose(
                f"{found.reason}; all go back to step {newest.step}, of which it isn't known that"
                " all had the same"
            )
    elif agreed is not None and _may_go_back(office, world, agreed):
        text = f"{found.reason}; all go back to what they agreed on after step {agreed.step}"
        found = replace(found, reason=text)
        _go_back(office, world, agreed, point)
    else:
        office.checkpoints.doubt(found.odd, world.generation)
        office.trust.states.rely(told.keys() - {*found.odd}, step)
        since = "the start" if agreed is None else f"step {agreed.step}"
        odd_ones = " and ".join(_named(world, node) for node in found.odd)
        office.exactness.lose(
            f"{found.reason}: {odd_ones} computes wrongly, or what the script does depends on the"
            " rank; the majority goes on, with sums to which the odd one may have added since"
            f" {since}"
        )
    for odd in found.odd:
        if _was_counted(office, world, odd, told[odd]):
            continue
        if office.trust.quarantine(odd) and (why := _kept_outside(office, world, odd)):
            since = "the start" if agreed is None else f"step {agreed.step}"
            office.exactness.lose(f"{why}, and those who stay go back without it, to {since}")
    culprits = found.odd or sorted(told)
    return Blames(tuple(Blame(n, "divergence", found.reason) for n in culprits))


def _go_back(office: Office, world: World, agreed: Point, split: Point) -> None:
    """Let nothing count that came after ``agreed``: neither of ``world`` nor of one that has gone
    on from there apart from it. Nor the state that was found to be ``split``, whoever has it."""
    office.checkpoints.spoil(agreed, world)
    office.trust.spoil(world, split.stamp)
    for known in office.roster.worlds(office.world):
        if office.checkpoints.is_of_spoilt(known):
            office.trust.spoil(known, split.stamp)


def _was_counted(office: Office, world: World, odd: NodeId, last: Tag) -> bool:
    """Whether that ``odd``, which was last in an older world, differs is what a newer one knows."""
    if last == world.generation:
        return False
    its = [known for known in office.roster.worlds(office.world) if known.generation == last]
    before = max((dict(known.diverged).get(odd, 0) for known in its), default=0)
    return office.trust.diverged.get(odd, 0) > before


def _kept_outside(office: Office, world: World, odd: NodeId) -> str:
    """Why the script, and not the node, may be what makes ``odd`` differ behind each restore; empty
    if another one began like it, and doesn't."""
    began = {
        node: status.trainer.began
        for node, status in office.statuses.items()
        if node in world.members and status.trainer is not None
    }
    its = began.pop(odd, 0)
    if not began or its in began.values():
        return ""
    return (
        f"{odd} differs again, and no other process began at step {its} as its did: the script may"
        " keep state outside of run.state"
    )


def refused(office: Office, world: World, found: Unlike, step: int) -> Outcome:
    """A script keeps by rank what is to be the same on all."""
    shown = ", ".join(
        f"{_named(world, node)} has {found.digests[node][:8] or 'none'}"
        for node in _in_order(world, found.digests)
    )
    reason = (
        f"{found.name} differs between ranks after step {step}: {shown}. The loop's body has to "
        "make it the same on every rank; what is each rank's own is to be tracked with "
        "run.track(name, thing, per_rank=True)"
    )
    generation = world.generation.counter
    office.ctx.emit("state_differs", reason, office.job, generation, step=step, name=found.name)
    return Outcome("failed", reason)


def _why_always(office: Office, world: World, found: Divergence) -> str:
    """What to tell where states differ behind each restore, and nobody knows whose is right."""
    first = office.checkpoints.survey.difference()
    where = ""
    if first is not None:
        tensor, nodes = first
        ranks = " and ".join(_named(world, node) for node in nodes)
        where = f"; the first tensor that differs is {tensor!r}, of {ranks}"
    return (
        f"{found.reason}{where}. It has come back behind each restore. Either what the script does "
        "depends on the rank, the time, or state outside of run.state, or a node computes wrongly "
        "(recovery.recheck_every finds out which)"
    )


def _named(world: World, node: NodeId) -> str:
    """A node, with its rank if it has one there."""
    return f"rank {world.members.index(node)} ({node})" if node in world.members else node


def _in_order(world: World, nodes: Iterable[NodeId]) -> list[NodeId]:
    """By rank; who has none there comes last."""
    ranks = {node: rank for rank, node in enumerate(world.members)}
    return sorted(nodes, key=lambda node: (ranks.get(node, len(ranks)), node))


def _may_go_back(office: Office, world: World, agreed: Point) -> bool:
    """Whether the job wants to, there is a checkpoint for it, and nobody has ended with the last
    state."""
    may = office.restores and office.checkpoints.survey.reaches(agreed, world)
    return may and not office.course.leaving
