"""What the leader does about members that are slower than others: shares that follow speed, a word
about stragglers, and a world without one where that is faster and the user allows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from elasticd.core.context import Context
from elasticd.core.leading.account import Account
from elasticd.core.leading.trust import Trust
from elasticd.core.words.records import World
from elasticd.recovery.speed import Speeds
from elasticd.settings.job import JobSpec
from elasticd.types import JobId, NodeId


@dataclass(slots=True)
class Balance:
    """Of one job, while its driver lives."""

    ctx: Context
    job: JobId
    spec: JobSpec
    account: Account
    trust: Trust
    speeds: Speeds = field(default_factory=Speeds)

    def foresee(self, seconds: Mapping[NodeId, float], reason: str) -> None:
        """Deal shares by these, until members' own times say otherwise."""
        self.speeds.foresee(seconds)
        self.ctx.emit("shares_foreseen", reason, self.job, seconds=dict(seconds))

    def look(self, world: World, grains: int, committed: int, warm: bool) -> list[NodeId]:
        """At a step boundary: the members that a new world should have; none: the old one stays.

        Args:
            grains: of a global batch.
            committed: the last committed step.
            warm: every member has a reducer in reserve, so that a new world costs little.
        """
        for found in self.speeds.stragglers(world.members, world.shares, self.ctx.now):
            self.account.tell(found.node, "slow", found.reason, world, found.since)
            why = self.speeds.better_without(found.node, world.members, grains)
            spare = len(world.members) - 1 >= self.spec.world.min
            if why and spare and self.spec.recovery.drop_slow:
                self.trust.drop_slow(found.node)
                self.ctx.emit(
                    "node_dropped",
                    f"the job goes on without {found.node}, which is slow: {why}",
                    self.job,
                    world.generation.counter,
                    culprit=found.node,
                )
                return [n for n in world.members if n != found.node]
        left = world.ends_at(self.spec.train.steps) - committed
        walks = world.walks and self.spec.world.reduction == "exact"
        move = self.speeds.judge(world.members, grains, world.shares, left, walks=walks)
        if move is None or not warm:
            return []
        counts = {
            n: sum(end - start for start, end in share)
            for n, share in zip(world.members, move.shares, strict=True)
        }
        generation = world.generation.counter
        self.ctx.emit("shares_moved", move.reason, self.job, generation, grains=counts)
        return list(world.members)
