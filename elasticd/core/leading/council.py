"""What follows from what the members hold: a plan for the next world, a wait, or the job's end.

:func:`decide` changes nothing and tells nobody: what is to be told is part of the decision.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from elasticd.core.leading import planning, routing
from elasticd.core.leading.planning import Situation, Start
from elasticd.core.leading.relief import Raise
from elasticd.core.words.records import GOING_BACK
from elasticd.core.words.worlds import Holding
from elasticd.counting import counted
from elasticd.recovery import faults, fitness
from elasticd.types import NO_TAG, NodeId, Tag


@dataclass(frozen=True, slots=True)
class Strain:
    """What the last recoveries have come to, and what is short."""

    pieces: tuple[faults.Evidence, ...] = ()
    """The evidence on which no plan was made yet."""
    evidence: str = ""
    """The last of it, in one line."""
    unread: int = 0
    """Checkpoints in a row that a member could not read."""
    fruitless: int = 0
    """Recoveries in a row without one committed step."""
    rest_seconds: float = 0.0
    """After so many of them the job has to rest for so long; 0: it has not."""
    resumes: bool = False
    """The job goes on from where it was paused: that is no recovery."""
    raised: Raise | None = None
    """What can be given up for want of memory, if that was the fault or is foreseen."""
    doubted: bool = False
    """A step kills again and again: the state before it may be the cause."""
    deadly: bool = False
    """A step has killed again: the loss of a node may be its doing."""
    unsure: bool = False
    """Nobody is left who knows how far the job had come."""


@dataclass(frozen=True, slots=True)
class Council:
    """All that the next world depends on."""

    at: Situation
    """With what the members that can enter a world say they hold."""
    trusted: Mapping[NodeId, Holding]
    """What counts of that."""
    unwanted: frozenset[NodeId] = frozenset()
    """Nodes that no job is to run on."""
    heard: Tag = NO_TAG
    """The newest world of the job that the leader's node has heard of."""
    odd: frozenset[NodeId] = frozenset()
    """Whose state was found to be another than the majority's."""
    quiet_seconds: float = 0.0
    """For so long a world that is cut off may still train."""
    strain: Strain = field(default_factory=Strain)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """No ring can hold these nodes, too."""

    nodes: tuple[NodeId, ...]
    why: str


@dataclass(frozen=True, slots=True)
class OneOfMany:
    """States differ, and all go on with that of one node, which may be the wrong one."""

    node: NodeId


@dataclass(frozen=True, slots=True)
class OlderState:
    """A newer checkpoint is known, of this step, and an older one has to do."""

    newest_known: int


@dataclass(frozen=True, slots=True)
class Renamed:
    """The members' state after this step is to be stored under another name: disks have another
    one, which nobody can complete."""

    step: int


Told = LeftOut | OneOfMany | OlderState | Renamed
"""What people are told of a decision, beside its reason."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A world can start; ``start.resume.reason`` says why in this way."""

    start: Start
    holdings: Mapping[NodeId, Holding]
    """Of those who can be in one ring."""
    raised: Raise | None = None
    """What is given up for want of memory."""
    in_vain: bool = False
    """One more recovery that counts as fruitless until a step is committed."""
    goes_back: bool = False
    """No state is used that is held, since it may be why a step kills."""
    opens_recovery: bool = False
    """A state comes back from disk though nobody saw anything break."""
    told: tuple[Told, ...] = ()


@dataclass(frozen=True, slots=True)
class Wait:
    """No world can start now."""

    reason: str
    rest_seconds: float = 0.0
    """Recovery after recovery came to nothing: the next try is in so long. 0: any news may help."""
    told: tuple[Told, ...] = ()


@dataclass(frozen=True, slots=True)
class Apart:
    """No world can start with these nodes, whose trainers have built something else than the
    others': each with what that is."""

    odd: tuple[tuple[NodeId, str], ...]
    right: frozenset[NodeId] = frozenset()
    """Those that have built what counts, left out or not."""
    told: tuple[Told, ...] = ()


@dataclass(frozen=True, slots=True)
class Fail:
    """No world can ever start."""

    reason: str
    told: tuple[Told, ...] = ()


def decide(council: Council) -> Plan | Wait | Apart | Fail:
    """What to do now that every member has said what it holds."""
    at = _counted(council)
    told: tuple[Told, ...] = ()
    apart = _out_of_ring(at)
    if isinstance(apart, str):
        return Wait(apart)
    if apart is not None:
        told = (apart,)
        at = replace(at, holdings={n: h for n, h in at.holdings.items() if n not in apart.nodes})
    overtaken = is_overtaken(at, council.heard)
    at = replace(at, overtaken=overtaken, noisy=noisy(overtaken, council.quiet_seconds))
    start = planning.start_point(at)
    if isinstance(start, str) and at.distrusted and at.waited:
        first, at = _with_one(at, council.at.holdings, council.odd)
        told = (*told, *first)
        start = planning.start_point(at)
    if isinstance(start, str):
        return Wait(start, told=told)
    if council.strain.doubted and (back := _from_disk(at)) is not None:
        at, start = back
    if start.origin is not None and start.origin == at.barred:
        told = (*told, Renamed(start.origin.step))
    if start.older >= 0:
        told = (*told, OlderState(start.older))
    if mismatch := at.roster.mismatch(start.resume.members):
        return _apart(at, start, mismatch)
    return _plan(council.strain, at, start, told)


def _plan(strain: Strain, at: Situation, start: Start, told: tuple[Told, ...]) -> Plan | Wait:
    seconds, raised = strain.rest_seconds, strain.raised
    if seconds:
        text = counted(strain.fruitless, "recovery", "recoveries")
        text += " in a row without one committed step"
        text += f"; the next in {seconds:g} s; {strain.evidence}"
        return Wait(text, seconds, told)
    members = at.world.members if at.world is not None else ()
    rung = start.rung
    if rung == "grow" and set(start.resume.members) <= set(members):
        rung = "regroup"  # some were drained
    if raised is not None and rung in ("retry", "regroup"):
        rung = "relieve"
    # Whatever is behind it: where steps are lost, or one kills, it has come to nothing.
    lost = rung in GOING_BACK and (strain.unsure or start.resume.point.step < at.committed)
    costs = strain.deadly or lost
    resumes = strain.resumes and not lost
    outside = (faults.from_outside(strain.pieces) and not costs) or strain.unread > 0
    return Plan(
        replace(start, rung=rung),
        at.holdings,
        raised,
        in_vain=bool(strain.pieces) and raised is None and not outside,
        goes_back=strain.doubted and start.manifest is not None,
        opens_recovery=rung == "restore" and not at.recovering and not resumes,
        told=told,
    )


def _apart(at: Situation, start: Start, mismatch: str) -> Apart | Fail:
    """Members have built different things. Most of those that train are right, or else most of all
    that have built something, be there room for them in the world or not. Where nobody has trained
    and no two agree, the script builds something else each time."""
    resume = start.resume
    keep = [n for n, s in zip(resume.members, resume.sources, strict=True) if s == "keep"]
    before = at.world.members if at.world is not None else ()
    trained = [n for n in keep if n in before] or keep
    prints = at.roster.prints(at.roster.statuses)
    guess = len(prints) > 2 or mismatch.startswith(("grain0 ", "data/"))
    if not trained and guess and not fitness.agree(prints):
        return Fail(mismatch)
    odd = at.roster.odd(prints, trained)
    here = tuple((node, reason) for node, reason in odd.items() if node in resume.members)
    return Apart(here, frozenset(prints) - odd.keys())


def _counted(council: Council) -> Situation:
    """What is held by those who are to stay, as far as it is trusted."""
    at, claimed = council.at, council.at.holdings
    holdings = _who_stays(at, council.trusted, council.unwanted)
    distrusted = any(h.point != claimed[n].point for n, h in holdings.items())
    return replace(at, holdings=holdings, distrusted=distrusted)


def _who_stays(
    at: Situation, holdings: Mapping[NodeId, Holding], unwanted: frozenset[NodeId]
) -> Mapping[NodeId, Holding]:
    """Without the nodes that are drained, unless what they hold or they themselves are needed."""
    stay = {n: h for n, h in holdings.items() if n not in unwanted}
    held = any(h.point is not None and h.point.step >= at.committed for h in stay.values())
    nobody = all(h.point is None for h in holdings.values())
    enough = len(stay) >= max(1, at.least)
    return stay if enough and (held or nobody) else holdings


def _out_of_ring(at: Situation) -> LeftOut | str | None:
    """Members that no ring can hold, since two of the others don't reach them: rather one that
    would only take a state, and was not in the world. Or why that must wait: too few would be left,
    or, for a while, nobody who holds what is committed."""
    members = at.world.members if at.world is not None else ()
    steps = {n: -1 if h.point is None else h.point.step for n, h in at.holdings.items()}
    order = sorted(steps, key=lambda n: (-steps[n], n not in members))
    without, why = routing.beyond_reach(at.roster, order, ())
    if not without:
        return None
    rest = max(step for node, step in steps.items() if node not in without)
    if rest < min(max(steps.values()), at.committed) and not at.waited:
        return f"only {order[0]} holds step {steps[order[0]]}: {why}"
    if (left := len(order) - len(without)) < at.least:
        return f"{left} of at least {counted(at.least, 'member')} can be in one ring: {why}"
    return LeftOut(without, why)


def _from_disk(at: Situation) -> tuple[Situation, Start] | None:
    """The newest checkpoint within reach, if it is older than the state that is held."""
    furthest = max((h.point.step for h in at.holdings.values() if h.point is not None), default=-1)
    nothing = {n: replace(h, point=None) for n, h in at.holdings.items()}
    at = replace(at, holdings=nothing, distrusted=True)
    start = planning.start_point(at)
    if isinstance(start, str) or start.manifest is None or start.resume.point.step >= furthest:
        return None
    reason = f"the state before the next step may be why that kills; {start.resume.reason}"
    return at, replace(start, resume=replace(start.resume, reason=reason))


def _with_one(
    at: Situation, claimed: Mapping[NodeId, Holding], odd: frozenset[NodeId]
) -> tuple[tuple[OneOfMany, ...], Situation]:
    """States differ, nobody can tell whose is right, and no checkpoint comes back: all go on with
    one, if it can be with one of the majority."""
    holders = [n for n in at.holdings if claimed[n].point is not None]
    first = min(holders, key=lambda n: n in odd, default=None)
    if first is None:
        return (), replace(at, distrusted=False)
    holdings = {n: claimed[n] if n == first else h for n, h in at.holdings.items()}
    return (OneOfMany(first),), replace(at, holdings=holdings, distrusted=False)


def is_overtaken(at: Situation, heard: Tag) -> bool:
    """Whether there was a newer world than any of those that members here were in."""
    if not at.strict:
        return False
    world = at.world
    if world is not None and not any(n in at.holdings for n in world.members):
        world = None  # nobody here has left it
    known = max((w.generation for w in at.roster.worlds(world)), default=NO_TAG)
    return heard > known


def noisy(overtaken: bool, quiet_seconds: float) -> str:
    """Why a world that is cut off may still run although only one side may train, or nothing."""
    if quiet_seconds <= 0 or not overtaken:
        return ""
    return f"a world that is cut off may train for another {quiet_seconds:.0f} s, and only one may"
