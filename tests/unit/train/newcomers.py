"""What newcomers of a cohort show in their first step, as its leader judges it."""

from __future__ import annotations

from elasticd.recovery.likeness import unlike
from elasticd.train.world import TrainerWorld
from elasticd.types import ProofPart, Tag


class Judge:
    """Of one cohort."""

    def __init__(self) -> None:
        self.shown: dict[tuple[Tag, str], dict[int, dict[str, str]]] = {}
        self.proven: set[tuple[Tag, str, str]] = set()
        self.unfit: dict[str, str] = {}
        """Who was left out, and why."""

    def hears(self, world: TrainerWorld, part: ProofPart, digests: dict[str, str]) -> str:
        """The member ``world.rank`` shows this. Who is to be left out, if anybody; what all others
        have shown is right, once those have shown it with whom they are compared."""
        shown = self.shown.setdefault((world.generation, part), {})
        shown[world.rank] = digests
        keeper = world.newcomers.keeper
        awaited = range(world.size) if part == "body" else [keeper]
        if not shown.keys() >= set(awaited):
            return ""
        for rank in world.newcomers.ranks:
            name = str(world.members[rank])
            if rank not in shown or (world.generation, part, name) in self.proven:
                continue
            first, step = str(world.members[keeper]), world.point.step + 1
            if why := unlike(shown[keeper], shown[rank], first, step):
                self.unfit[name] = why
                return name
            self.proven.add((world.generation, part, name))
        return ""

    def has_proven(self, world: TrainerWorld, name: str) -> bool:
        """Whether a newcomer has shown all that it had to."""
        return (world.generation, "body", name) in self.proven
