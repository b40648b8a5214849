"""What one job's leader does about steps that kill (elasticd/recovery/poison.py has the rungs)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from elasticd.core.leading import behind
from elasticd.core.leading.office import Office
from elasticd.core.leading.roster import HOLDING
from elasticd.core.words.records import World
from elasticd.core.words.worlds import Fault
from elasticd.recovery.poison import HANG, LOST, Dealt, Ranges, is_short, signature_of
from elasticd.recovery.regroup import Shares
from elasticd.recovery.relief import Cut
from elasticd.recovery.restore import Resume
from elasticd.types import NodeId, Range


def count(office: Office, fault: Fault, ready: Collection[NodeId] = ()) -> str:
    """Take in what may be the death of a trainer. Why the job can't go on, or nothing.

    ``ready``: who may compute in the world that forms.
    """
    ladder, world = office.trust.ladder, office.world
    signature = signature_of(fault.fault, fault.status)
    if fault.failing is not None or world is None or not signature:
        return ""
    if (why := behind.count(office, fault)) is not None:
        return why
    if fault.generation != ladder.dealt.generation and fault.culprit not in ready:
        return ""
    relieved = not office.relief.has_more(office.roster.least_micro())
    short = is_short(fault.fault, fault.status, fault.evidence, relieved=relieved)
    step = office.course.committed + 1
    now, said = office.ctx.now, fault.evidence
    ladder.took(fault.culprit, signature, step, fault.generation, now, short=short, said=said)
    if ladder.rung() == "relief" and signature not in (HANG, LOST):
        office.relief.suspect(f"{signature} at step {step} again and again may be want of memory")
    why = ladder.verdict(world.members, now)
    return f"{why}; {fault.evidence}" if why else ""


def count_lost(office: Office, node: NodeId, text: str, ready: Collection[NodeId] = ()) -> str:
    """A node of the world is gone, be it by what it computed, unless it has said that it goes. As
    :func:`count`."""
    world = office.world
    if world is None or office.all_committed or node in office.ctx.departures.on_purpose:
        return ""
    why = count(office, Fault(office.job, world.generation, node, "peer_lost", text), ready)
    office.came_back(node)
    return why


def inherit(office: Office, world: World) -> None:
    """An earlier leader's ``world`` is broken, and computed until then. At which step is known if
    somebody lives who was in it, or if it was made for a step that had ended others before."""
    ladder, step = office.trust.ladder, office.course.committed + 1
    lives = any(node in world.members for node in office.roster.trainers(*HOLDING))
    if lives or (step in ladder.tries and step == world.step + 1):
        ladder.begin(_dealt(office, world))


def plan(office: Office, world: World) -> None:
    """``world`` is to form."""
    office.trust.ladder.plan(_dealt(office, world))


def begin(office: Office, world: World) -> None:
    """``world`` computes from now on."""
    office.trust.ladder.begin(_dealt(office, world))


def _dealt(office: Office, world: World) -> Dealt:
    cut, pairs = office.relief.cut(world.relief), list(enumerate(world.members))
    now = {node: _samples(cut, world.shares_now[rank]) for rank, node in pairs}
    later = {node: _samples(cut, world.shares[rank]) for rank, node in pairs}
    return Dealt(world.generation, world.step + 1, now, later, apart=world.alone)


@dataclass(frozen=True, slots=True)
class Deal:
    """The shares of the next world's first step, and of later ones."""

    now: Shares
    later: Shares
    alone: bool = False
    """One member has all of the later ones, too: the step that kills is one of them."""
    why: str = ""
    """Why they are not the usual ones, or may not be for long."""


def deal(office: Office, cut: Cut, resume: Resume, usual: tuple[Shares, Shares]) -> Deal:
    """The ``usual`` shares; but until a step that kills is over one node has all of it."""
    ladder, members = office.trust.ladder, resume.members
    chosen = ladder.choose(members)
    if chosen is None:
        return Deal(*usual, why=ladder.told)
    step = ladder.worst[0]
    everything: Shares = tuple((cut.whole,) if node == chosen else () for node in members)
    text = f"{ladder.told}; {chosen} alone computes it"
    if resume.point.step + 1 == step:
        return Deal(everything, usual[1], why=text)
    return Deal(everything, everything, len(members) > 1, text)


def _samples(cut: Cut, grains: tuple[Range, ...]) -> Ranges:
    last, micro = cut.global_size, cut.micro
    return tuple((start * micro, min(last, end * micro)) for start, end in grains)
