"""Whose states come from one world, though some have gone on in another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from elasticd.core.words.records import World
from elasticd.types import Tag


@dataclass(slots=True)
class Origins:
    differed: set[Tag | None] = field(default_factory=set)
    """Worlds whose members' states differed, and nobody knew whose are right."""
    roots: dict[Tag | None, Tag | None] = field(default_factory=dict)
    """Of worlds in which members of one world went on with what they had, that world."""

    def differ(self, world: World, keep: Sequence[Tag | None]) -> bool:
        """Whether those who keep what they hold in ``world`` may hold something else each: all but
        members of one world that has gone on apart, be it under one of them in another one.

        Args:
            keep: of each of them the world that it entered last.
        """
        # The leader's own has entered this one already.
        entered = {*keep} - {world.generation}
        roots = {self.roots.get(each, each) for each in entered}
        doubted = bool(self.differed & (entered | roots))
        if len(roots) == 1 and not doubted:
            self.roots[world.generation] = next(iter(roots))
        return len(keep) > 1 and (len(roots) > 1 or doubted)
