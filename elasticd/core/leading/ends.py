"""How the scripts of one job come to their ends, as its members tell the leader."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf

from elasticd.core.words.records import World
from elasticd.core.words.worldlines import shared_step
from elasticd.types import NodeId, Tag


@dataclass(slots=True)
class Ends:
    """Of one job, while its driver lives."""

    killed_at: dict[NodeId, int] = field(default_factory=dict)
    """On these nodes the script was killed behind its loop, or may have been, when that step of
    the last world's line was the newest committed one. It has not come to its end since."""
    killed_in: set[Tag] = field(default_factory=set)
    """The worlds in which that is certain."""
    come: set[NodeId] = field(default_factory=set)
    """Where it has come to its end, and was not begun again since."""

    def take(self, before: World | None, world: World) -> None:
        """``world`` takes the place of the one before. What was killed at a step that its line has
        not gone through has led to nothing that counts."""
        shared = inf if before is None else shared_step(before, world)
        self.killed_at = {node: step for node, step in self.killed_at.items() if step <= shared}

    def begin(self, members: Iterable[NodeId]) -> None:
        """On these it runs towards it once more."""
        self.come.difference_update(members)

    def end(self, node: NodeId) -> None:
        """It has come to it there."""
        self.come.add(node)
        self.killed_at.pop(node, None)

    def killed(self, node: NodeId, committed: int) -> None:
        """It was killed there, be it behind its loop, when that step was the newest."""
        self.killed_at[node] = committed

    def killed_behind(self, generation: Tag) -> int:
        """In how many worlds that was certain, with this one."""
        self.killed_in.add(generation)
        return len(self.killed_in)

    def owing(self, last: int) -> set[NodeId]:
        """Where what stands behind the loop is still to be run, if that step was the last one."""
        return {node for node, step in self.killed_at.items() if step == last}

    def lacking(self, members: Iterable[NodeId], owing: Iterable[NodeId]) -> list[NodeId]:
        """Of which of these nobody knows that it has come to its end."""
        known = (*members, *sorted(owing))
        return [node for node in dict.fromkeys(known) if node not in self.come]
