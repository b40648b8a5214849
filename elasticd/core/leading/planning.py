"""From what the members hold to the next world: where it starts, who is in it, who computes what.

Nothing here acts: functions of a :class:`Situation`, each of which returns its decision with its
reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from elasticd.checkpoints import choose
from elasticd.checkpoints.line import ancestry, descends
from elasticd.checkpoints.manifest import Manifest, Stored
from elasticd.core.leading.roster import Roster
from elasticd.core.words.records import World
from elasticd.core.words.worlds import Holding
from elasticd.counting import counted
from elasticd.recovery import regroup, restore
from elasticd.recovery.lineages import Left, Parting, Ran, is_left, partings, remaining
from elasticd.recovery.relief import Cut
from elasticd.settings.job import JobSpec
from elasticd.types import NO_TAG, JobId, Lineage, NodeId, Point, Range, Rung, first_stamp


@dataclass(frozen=True, slots=True)
class Start:
    """What a world starts from."""

    resume: restore.Resume
    rung: Rung
    parent: Point | None = None
    manifest: Manifest | None = None
    holders: tuple[tuple[NodeId, ...], ...] = ()
    opened: str = ""
    """Why a lineage begins here, if one does; it comes from ``origin``, if from anywhere."""
    origin: Point | None = None
    parted: tuple[Parting, ...] = ()
    """Lineages that end here, having met one that is further."""
    older: int = -1
    """A newer checkpoint is known, of this step, and out of reach."""


@dataclass(frozen=True, slots=True)
class Situation:
    """All that the choice of a start depends on."""

    job: JobId
    spec: JobSpec
    least: int
    """The fewest members."""
    roster: Roster
    holdings: Mapping[NodeId, Holding]
    """Of members that can enter a world, in order of their names."""
    world: World | None
    """The last one."""
    newest: Manifest | None
    """The newest consistent checkpoint."""
    parents: Mapping[Lineage, Point | None]
    """Where lineages were opened, as worlds and checkpoints say."""
    begun: frozenset[Lineage]
    """Lineages whose checkpoints are known, be they unfinished."""
    committed: int
    recovering: bool
    """Something broke; else somebody is to be let in."""
    waited: bool
    """Nodes that may hold something newer had their time to come back."""
    nonce: Callable[[], str]
    """A name for a lineage that begins here."""
    distrusted: bool = False
    """Some state that is held can't be trusted."""
    noisy: str = ""
    """Why a world that is cut off may still run although only one side may train, or nothing."""
    left: Left = ()
    """What was trained in lineages that have met one that was further."""
    ran: Ran = ()
    """How far lineages went of which no last world that is known tells any more."""
    spoilt: Left = ()
    """What was written of states of which nobody knows who is right."""
    strict: bool = False
    """No other side trains."""
    barred: Point | None = None
    """The state of the last world that no disk takes under its name."""
    overtaken: bool = False
    """There was a newer world than all that are known here."""
    keepers: tuple[NodeId, ...] = ()
    """Nodes that are away, and may have a checkpoint of a job that has made steps before."""
    had: int = 0
    """The step of a checkpoint that the job had; 0: it had none."""
    rested: int = -1
    """The step at which the job came to rest, where it is to go on from there."""


def start_point(at: Situation) -> Start | str:
    """What the next world starts from, or why none can start now."""
    if at.noisy:
        return at.noisy
    at = replace(at, holdings={n: _in_turn(at, _renamed(at, h)) for n, h in at.holdings.items()})
    start = _start_point(at)
    if isinstance(start, str):
        return start
    kept = start.origin or start.resume.point
    held = [h.point for h in at.holdings.values() if h.point is not None]
    held = held or [head.choice.manifest.point for head in _heads(at)]
    return replace(start, parted=tuple(partings(held, kept, lambda name: _parent_of(at, name))))


def _renamed(at: Situation, holding: Holding) -> Holding:
    """A state as the world calls it that a member has entered with it: a trainer that was frozen
    before it took that world up does not know yet that a lineage opens there."""
    point = holding.point
    if point is None:
        return holding
    names = (
        world.lineage
        for world in at.roster.worlds(at.world)
        if world.generation == holding.entered
        and (world.step, world.stamp) == (point.step, point.stamp)
    )
    return replace(holding, point=replace(point, lineage=next(names, point.lineage)))


def _in_turn(at: Situation, holding: Holding) -> Holding:
    """Where one side trains at a time, a state that the last history did not go through is over."""
    last = at.roster.newest_world(at.world) if at.strict else None
    if last is None or holding.point is None:
        return holding
    parents = dict(at.parents) | {w.lineage: w.parent for w in at.roster.worlds(at.world)}
    if descends(last.lineage, holding.point, parents):
        return holding
    # A history of which no disk has anything has left nothing to go on with.
    shared = ancestry(holding.point.lineage, parents)
    since = [name for name in ancestry(last.lineage, parents) if name not in shared]
    if not any(_has_checkpoints(at, name) for name in since):
        return holding
    return replace(holding, point=None)


def _start_point(at: Situation) -> Start | str:
    if len(at.holdings) < at.least:
        least = counted(at.least, "member is", "members are")
        return f"{len(at.holdings)} of at least {least} ready"
    held = {n: restore.Held(h.point, h.entered) for n, h in at.holdings.items()}
    best = restore.best_held(held)
    step = best.point.step if best is not None and best.point is not None else -1
    choice = _newest_within_reach(at)
    reach = choice.manifest.step if choice is not None else -1
    known, older = _newest_in_line(at), -1
    if max(step, reach) < known:
        if max(step, reach) < 0 or not at.waited:
            return f"shards of checkpoint {known} are on nodes that are away"
        older = known
    elif at.keepers and 0 <= max(step, reach) < at.rested:
        if not at.waited:
            named = ", ".join(at.keepers)
            return f"step {at.rested}, at which the job came to rest, may be on {named}"
        older = at.rested
    if best is not None and step >= reach:
        return replace(_from_survivors(at, best), older=older)
    if choice is None and at.distrusted:
        return "there is no checkpoint to go back to"
    members = tuple(sorted(at.holdings))
    if at.spec.world.max:
        members = members[: at.spec.world.max]
    if choice is not None:
        return replace(_from_checkpoint(at, choice, members), older=older)
    if at.left and at.roster.has_stored() and not _is_lost(at, at.newest):
        return "only checkpoints of histories that were left are within reach"
    if at.keepers:
        named = ", ".join(at.keepers)
        return (
            f"the job has made steps before, and nothing of them is here: waiting for {named}"
            " (for good away? elasticctl nodes forget NODE)"
        )
    if at.had:
        return (
            "the job had checkpoints, and none can be read here: bring back the disk or the folder"
            f" that has them; are they lost? 'elasticctl cancel {at.job}', and submit it again: it"
            " begins at step 0"
        )
    lineage = Lineage(at.nonce())
    point = Point(lineage, 0, first_stamp(at.job, lineage))
    sources = ("init", *(f"peer:{members[0]}" for _ in members[1:]))
    resume = restore.Resume(point, members, sources, "the job starts")
    return Start(resume, "start", opened=f"lineage {lineage} begins with the job")


def _newest_in_line(at: Situation) -> int:
    """The step of the newest known checkpoint; -1 if what is trained now began before it."""
    newest, last = at.newest, at.roster.newest_world(at.world)
    parent = last.parent if last is not None else None
    away = -1
    if last is not None:
        # After a power cut whoever is back first has manifests of more than it can restore.
        away = choose.elsewhere(_stored(at), last.lineage, parent)
    if newest is None or _is_lost(at, newest):
        return away
    if parent is not None and newest.lineage == parent.lineage and newest.step > parent.step:
        return away
    return max(newest.step, away)


def _is_lost(at: Situation, manifest: Manifest | None) -> bool:
    """Whether there was a checkpoint of which nobody brings what is missing: all who were to hold
    it are here, and had their time."""
    if manifest is None or not at.waited:
        return False
    return {n for named in manifest.holders for n in named} <= at.roster.statuses.keys()


def _newest_within_reach(at: Situation) -> choose.Choice | None:
    """The checkpoint to restore: of the lineage that was last trained, if it has any; never of one
    that was left, nor, while there is anything else, one that may be spoilt. Where histories meet
    of which no trainer lives the furthest goes on."""
    heads = _heads(at)
    if heads:
        return max((h.choice for h in heads), key=lambda c: c.manifest.step)
    choice = choose.newest(remaining(_stored(at), at.left))
    held = any(h.point is not None for h in at.holdings.values())
    if choice is None and at.spoilt and not at.distrusted and not held:
        return _newest_within_reach(replace(at, spoilt=()))
    return choice


def _stored(at: Situation) -> dict[NodeId, tuple[Stored, ...]]:
    return remaining(at.roster.stored(), at.spoilt)


@dataclass(frozen=True, slots=True)
class _Head:
    """The newest checkpoint within reach of a history, by the last world of it that is known."""

    world: World
    choice: choose.Choice


def _heads(at: Situation) -> list[_Head]:
    """Newest world first; only that one's while trainers live, who have been compared."""
    stored = _stored(at)
    alive = [w for w in at.roster.worlds(at.world) if not is_left(at.left, w.lineage, w.step)]
    alive.sort(key=lambda w: w.generation, reverse=True)
    if any(h.point is not None for h in at.holdings.values()):
        alive = alive[:1]
    found = ((w, choose.newest(stored, w.lineage, w.parent)) for w in alive)
    return [_Head(world, choice) for world, choice in found if choice is not None]


def _from_survivors(at: Situation, best: restore.Held) -> Start:
    assert best.point is not None
    previous = at.world.members if at.world is not None else ()
    points = {n: h.point for n, h in at.holdings.items()}
    gives = {n: h.gives for n, h in at.holdings.items()}
    replays = {n for n, h in at.holdings.items() if h.replays}
    order = restore.Order(previous, at.spec.world.max)
    resume = restore.from_survivors(points, best.point, order, gives, replays)
    rung: Rung = "regroup" if _somebody_left(at) else "retry"
    if not at.recovering:
        # Without a newcomer only shares change.
        rung = "grow" if set(resume.members) - set(previous) else "retry"
    if best.point.step < at.committed:
        rung = "rescue"  # who holds it was in none of the worlds that went on
    lineage = best.point.lineage
    last = at.roster.last_run(lineage, at.world) or at.roster.last_of(lineage, at.world)
    barred = best.point == at.barred
    if (
        last is not None
        and not barred
        and (best.entered or NO_TAG) >= max(last.generation, dict(at.ran).get(lineage, NO_TAG))
        and not at.overtaken
        and not is_left(at.left, lineage, best.point.step)
        and (
            at.strict
            or _is_over(at, best.point)
            # The members, not the view: a view may part before the rest of it hears of this world.
            or restore.keeps_lineage(last.members, resume.members)
        )
    ):
        return Start(resume, rung, _parent_of(at, lineage))
    # We go on under a name of our own.
    parent = best.point if _has_checkpoints(at, lineage) else _parent_of(at, lineage)
    why = "others of its last world may go on with that"
    if barred:  # what disks have of that step is not of the new line
        parent = replace(best.point, step=best.point.step - 1)
        why = "disks have another state of that step, which nobody can complete"
    point = replace(best.point, lineage=Lineage(at.nonce()))
    opened = f"lineage {point.lineage} opens after step {point.step} of {lineage}: {why}"
    resume = replace(resume, point=point)
    return Start(resume, rung, parent, opened=opened, origin=best.point)


def _is_over(at: Situation, point: Point) -> bool:
    """Whether this is the last world's last state, which all its members have applied: whatever
    others do, they come to no other."""
    world = at.world
    if world is None or point.lineage != world.lineage:
        return False
    return point.step == world.ends_at(at.spec.train.steps) <= at.committed


def _has_checkpoints(at: Situation, lineage: Lineage) -> bool:
    manifests = [i.manifest for s in at.roster.statuses.values() for i in s.stored]
    return lineage in at.begun or any(manifest.lineage == lineage for manifest in manifests)


def _from_checkpoint(at: Situation, choice: choose.Choice, members: tuple[NodeId, ...]) -> Start:
    manifest = choice.manifest
    point = Point(Lineage(at.nonce()), manifest.step, manifest.stamp)
    reason = f"no living trainer holds a newer state; {choice.reason}"
    resume = restore.Resume(point, members, ("checkpoint",) * len(members), reason)
    opened = f"lineage {point.lineage} opens at step {point.step} of {manifest.lineage}: {reason}"
    return Start(
        resume,
        "restore",
        manifest.point,
        manifest,
        choice.sources,
        opened=opened,
        origin=manifest.point,
    )


def _parent_of(at: Situation, lineage: Lineage) -> Point | None:
    """Where a lineage was opened."""
    known = [w.parent for w in at.roster.worlds(at.world) if w.lineage == lineage]
    known += [at.parents[lineage]] if lineage in at.parents else []
    stored = (i.manifest for s in at.roster.statuses.values() for i in s.stored)
    return next(iter(known), None) or next((m.parent for m in stored if m.lineage == lineage), None)


def _somebody_left(at: Situation) -> bool:
    """Whether a member of the last world holds nothing any more."""
    members = at.world.members if at.world is not None else ()
    return any((h := at.holdings.get(n)) is None or h.point is None for n in members)


def shares_kept(
    previous: World | None, resume: restore.Resume, before: Cut, after: Cut
) -> dict[NodeId, tuple[Range, ...]]:
    """The shares of a step that was cut, of the members that stay in place: their sums are good
    still. Nothing if grains have another size now."""
    point = resume.point
    if previous is None or point.lineage != previous.lineage or before != after:
        return {}
    now = previous.shares_now if previous.step == point.step else previous.shares
    return {
        n: now[rank]
        for rank, n in enumerate(previous.members)
        if n in resume.members and resume.sources[resume.members.index(n)] == "keep"
    }


def deal(
    cut: Cut,
    kept: Mapping[NodeId, tuple[Range, ...]],
    members: tuple[NodeId, ...],
    seconds: tuple[float, ...],
    wire_seconds: float = 0.0,
) -> tuple[regroup.Shares, regroup.Shares]:
    """The shares of the first step and of all later ones."""
    now = regroup.reshare(cut.grains, kept, members, seconds)
    regroup.check_shares(cut.grains, now)
    return now, regroup.shares(cut.grains, len(members), seconds, wire_seconds)
