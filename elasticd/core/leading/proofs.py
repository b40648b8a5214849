"""Whether members that join compute what those do who stay, as the leader of a job sees it.

They show it in the first step of their world, and wait for the answer: before the step is reduced
for that over a grain, and before its state is stored or goes into another sum for that over what
its body has left. So who computes something else is left out before anybody is touched by it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import get_args

from elasticd.core.context import Context
from elasticd.core.words.records import World
from elasticd.core.words.worlds import MemberStatus, Proven
from elasticd.recovery.likeness import unlike
from elasticd.types import JobId, NodeId, ProofPart

_PARTS: tuple[ProofPart, ...] = get_args(ProofPart)


@dataclass(slots=True)
class Proofs:
    """Of one job, while its driver lives."""

    ctx: Context
    job: JobId
    told: set[tuple[NodeId, ProofPart]] = field(default_factory=set)
    """Members that were told that what they have shown is right."""

    def judge_anew(self) -> None:
        """Another world forms, or what was told may have been lost."""
        self.told.clear()

    def look(
        self, world: World, statuses: Mapping[NodeId, MemberStatus], counts: bool
    ) -> dict[NodeId, str]:
        """Answer those who have shown what the keeper has, or whatever where that ``counts`` for
        nothing. Who computes something else, and why one thinks so."""
        odd: dict[NodeId, str] = {}
        keeper = world.keeper
        if keeper is None:
            return odd
        for part in _PARTS:
            ours = _shown(keeper, world, statuses, part)
            for node in world.unproven:
                theirs = _shown(node, world, statuses, part)
                if not theirs or (node, part) in self.told or (counts and not ours):
                    continue
                if counts and (why := unlike(ours, theirs, keeper, world.step + 1)):
                    odd[node] = why
                else:
                    self._tell(world, node, part)
            if ours and all((node, part) in self.told for node in world.unproven):
                self._tell(world, keeper, part)
        return odd

    def _tell(self, world: World, node: NodeId, part: ProofPart) -> None:
        if (node, part) not in self.told:
            self.told.add((node, part))
            self.ctx.send(node, Proven(self.job, world.generation, part))


def _shown(
    node: NodeId, world: World, statuses: Mapping[NodeId, MemberStatus], part: ProofPart
) -> dict[str, str]:
    status = statuses.get(node)
    trainer = status.trainer if status is not None else None
    proof = trainer.proof if trainer is not None else None
    return proof.of(part) if proof is not None and proof.generation == world.generation else {}
