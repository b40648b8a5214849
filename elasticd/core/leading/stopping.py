"""Where a job ends that its script has asked to stop.

A trainer asks at the end of a step's body, and waits. If every member that ran this body has asked,
that step is the last, whatever breaks meanwhile: nobody can have gone further. A member that has
begun the next step did not ask. So that step, which waits for those who did, is the last.

The leader says it in a world of its own, ``World.last``, which all members enter at once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from elasticd.checkpoints.manifest import Manifest
from elasticd.core.leading.halting import HALTED
from elasticd.core.words.records import GOING_BACK, StopAsked, World
from elasticd.core.words.worlds import Progress
from elasticd.types import NodeId, Point, Rung

THE_SCRIPT = "the script asked for it"


@dataclass(frozen=True, slots=True)
class LastStep:
    """Which step is the last, and why."""

    last: int
    reason: str


def ending(
    world: World,
    asked: Mapping[NodeId, StopAsked],
    progress: Mapping[NodeId, Progress],
    bodies: Mapping[NodeId, int],
) -> LastStep | None:
    """What follows from who has asked in ``world``, and from how far the others are; nothing as
    long as they may still ask. ``bodies``: in that of which step members wait in a call."""
    if world.last >= 0 or not asked:
        return None
    step = max(each.step for each in asked.values())
    who = [n for n in world.members if n in asked and asked[n].step == step]
    others = [n for n in world.members if n not in who and not came_with(world, n, step)]
    reason = asked[who[0]].reason or THE_SCRIPT
    if not others:
        return LastStep(step, reason)
    further = [n for n in others if n in progress and is_past(progress[n], step)]
    if further or any(bodies.get(n, 0) > step for n in others):
        text = f"{', '.join(who)} asked after step {step}, {', '.join(others)} did not"
        return LastStep(step + 1, f"{reason} ({text})")
    return None


def asked_before(point: Point, ran: Collection[NodeId], asked: Mapping[NodeId, StopAsked]) -> str:
    """Why ``point`` is the last, if all members of a new world that ``ran`` its step's body, and go
    on with it, have asked; empty: they have not. Those that are given the state have not asked, and
    may be all that is left before that world has taken a step."""
    if not ran or any(n not in asked or asked[n].step != point.step for n in ran):
        return ""
    return asked[min(ran)].reason or THE_SCRIPT


def is_past(progress: Progress, step: int) -> bool:
    """Whether it is past the end of that step's body."""
    halted = progress.phase == HALTED and progress.step == step
    return halted or progress.has_begun_after(step)


def came_with(world: World, node: NodeId, step: int) -> bool:
    """Whether a member was given the state of ``step``: it never ran that step's body."""
    return world.step == step and (node in world.given or node in world.takers)


def last_kept(before: World | None, point: Point, rung: Rung, manifest: Manifest | None) -> int:
    """The last step of a world that goes on from ``point``, if one is known from the world before,
    or from the checkpoint that it starts from; -1: none. Who goes back comes to that step again,
    and may ask again."""
    if manifest is not None and manifest.last:
        return point.step
    if before is None or before.last < point.step:
        return -1
    return before.last if before.last == point.step or rung not in GOING_BACK else -1
