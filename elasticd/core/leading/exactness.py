"""Whether one job's results are the same bits wherever its grains are computed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from elasticd.core.context import Context
from elasticd.core.words.records import World
from elasticd.core.words.worlds import MemberStatus, Verdict
from elasticd.types import NodeId

Probes = list[tuple[NodeId, dict[str, Any]]]


@dataclass(slots=True)
class Exactness:
    """As its leader has found; once lost it does not come back.

    A job that reduces in no fixed order (``fast``) has none.
    """

    ctx: Context
    fast: bool
    kept: bool = True
    judged: set[NodeId] = field(default_factory=set)
    """Members whose fresh processes were told the verdict."""

    def lose(self) -> None:
        """Sums are rounded in another way from now on, or states differ and nobody knows why."""
        self.kept = False

    def adopt(self, world: World) -> None:
        """What earlier leaders have found."""
        self.kept = world.exact

    def judge_anew(self) -> None:
        """Processes are fresh, or what was told may have been lost."""
        self.judged.clear()

    def judge(self, world: World, statuses: Mapping[NodeId, MemberStatus]) -> None:
        """Tell the members whether their probes agree, before the first step of fresh processes."""
        fresh: Probes = []
        for node in world.members:
            status = statuses.get(node)
            if status is None or status.trainer is None or status.world is None:
                return
            if status.trainer.judged or node in self.judged:
                continue
            if status.trainer.probe is None or status.world.generation != world.generation:
                return
            fresh.append((node, status.trainer.probe))
        if not fresh:
            return
        same, reason = verdict(fresh)
        if self.fast:
            same, reason = False, 'reduction is "fast"'
        self.kept = self.kept and same
        for node, _ in fresh:
            self.judged.add(node)
            self.ctx.send(node, Verdict(world.job, world.generation, same, reason))


def verdict(probes: Probes) -> tuple[bool, str]:
    """Whether fresh members compute the same bits, and what differs.

    Newcomers were prepared one by one, and only what was computed from one state can be compared.
    """
    for node, probe in probes:
        if not probe["repeats"]:
            return False, f"on {node} one grain computed twice gave different bits"
    firsts: dict[str, tuple[NodeId, dict[str, Any]]] = {}
    for node, probe in probes:
        first_node, first = firsts.setdefault(probe["state"], (node, probe))
        for key, what in (
            ("gradient", "gradients"),
            ("update", "updates"),
            ("layout", "state leaves"),
        ):
            if probe[key] != first[key]:
                return False, f"{what} differ between {first_node} and {node}"
    return True, ""
