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
from elasticd.core.words.worldlines import stayed
from elasticd.core.words.worlds import MemberStatus, Proven
from elasticd.recovery.divergence import Unlike
from elasticd.recovery.likeness import Kinds, unlike
from elasticd.types import JobId, NodeId, ProofPart

_PARTS: tuple[ProofPart, ...] = get_args(ProofPart)
Shown = dict[NodeId, dict[str, str]]


@dataclass(slots=True)
class Proofs:
    """Of one job, while its driver lives."""

    ctx: Context
    job: JobId
    told: set[tuple[NodeId, ProofPart]] = field(default_factory=set)
    """Members that were told that what they have shown is right."""
    _kinds: dict[ProofPart, Kinds] = field(default_factory=lambda: {p: Kinds() for p in _PARTS})

    def judge_anew(self) -> None:
        """Another world forms, or what was told may have been lost."""
        self.told.clear()
        for kinds in self._kinds.values():
            kinds.clear()

    def look(
        self,
        world: World,
        statuses: Mapping[NodeId, MemberStatus],
        *,
        counts: bool,
        committed: int,
    ) -> dict[NodeId, str] | Unlike:
        """Answer those who have shown what the others have, or whatever where that ``counts`` for
        nothing. Who computes something else, and why one thinks so; or what the script keeps by
        rank."""
        passed = committed > world.step + 1
        odd: dict[NodeId, str] = {}
        kept = stayed(world)
        for part in _PARTS if kept else ():
            shown, kinds = _shown(world, statuses, part), self._kinds[part]
            # One of those who stay computes the grain, and all show what their body leaves.
            ours = {n: shown[n] for n in (kept if part == "body" else kept[:1]) if n in shown}
            if counts and (found := kinds.by_rank(ours)) is not None:
                return found
            complete = part == "grain" or len(ours) == len(kept)
            for node in world.unproven:
                theirs = shown.get(node)
                if theirs is None or (node, part) in self.told or (counts and not ours):
                    continue
                if not counts or kinds.among(node, theirs, ours):
                    self._tell(world, node, part)
                elif complete:
                    who, its = next(iter(ours.items()))
                    odd[node] = unlike(its, theirs, who, world.step + 1)
            if passed:  # not sooner: another leader may have to compare again
                for node in ours:
                    self._tell(world, node, part)
        return odd

    def of_stayed(self, world: World, statuses: Mapping[NodeId, MemberStatus]) -> dict[NodeId, str]:
        """What those who have stayed show of what their body leaves: one text for all alike."""
        shown, kinds = _shown(world, statuses, "body"), self._kinds["body"]
        return {n: str(kinds.of(n, shown[n])) for n in stayed(world) if n in shown}

    def _tell(self, world: World, node: NodeId, part: ProofPart) -> None:
        if (node, part) not in self.told:
            self.told.add((node, part))
            self.ctx.send(node, Proven(self.job, world.generation, part))


def _shown(world: World, statuses: Mapping[NodeId, MemberStatus], part: ProofPart) -> Shown:
    """What members have shown in this world, those who were not told yet that it is right."""
    found = {}
    for node in world.members:
        status = statuses.get(node)
        proof = status.trainer.proof if status is not None and status.trainer is not None else None
        if proof is not None and proof.generation == world.generation and proof.of(part):
            found[node] = proof.of(part)
    return found
