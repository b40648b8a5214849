"""Tracked trees of arrays that the script's loop never changes: most likely it binds the name anew,
and what is tracked is what the name was bound to first."""

from __future__ import annotations

import sys
from typing import Any

from elasticd.train.states.attributes import alike, remembered
from elasticd.train.states.trees import arrays

BODIES = 10
"""So many of the loop's bodies have to leave a tree alone."""


class StaleTrees:
    """Of one process; for the training thread alone."""

    def __init__(self) -> None:
        self._watched: dict[str, tuple[Any, Any, int]] = {}
        """By name the tree, what it was first, and how many bodies have seen it."""

    def watch(self, name: str, thing: Any) -> None:
        """``thing`` was tracked just now."""
        if isinstance(thing, (dict, list)) and arrays(thing):
            self._watched[name] = thing, remembered(thing), 0

    def body_ends(self) -> list[str]:
        """The names of those that nobody has changed so far, each once."""
        stale = []
        for name, (thing, first, bodies) in list(self._watched.items()):
            self._watched[name] = thing, first, bodies + 1
            if bodies + 1 == BODIES:
                del self._watched[name]
                if alike(first, thing):
                    stale.append(name)
        return stale


def name_stale(trees: StaleTrees, *, aloud: bool) -> None:
    """A body of the loop has ended: warn of those that none changes, if ``aloud``."""
    for name in trees.body_ends():
        if aloud:
            warn(name)


def warn(name: str) -> None:
    """Say so on stderr."""
    print(
        f"elasticd: run.track({name!r}, …): {BODIES} steps have not changed it. If the loop binds "
        f"the name anew ({name} = …), the new tree is not tracked, and a kill loses it: change "
        f"the tree in place, or write run.state.{name} = …",
        file=sys.stderr,
        flush=True,
    )
