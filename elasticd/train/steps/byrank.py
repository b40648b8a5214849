"""What each rank has of its own: how the script's things come to it, and what ranks tell of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mlx.core as mx

from elasticd.errors import UsageError
from elasticd.train.steps.gathering import Gathering
from elasticd.train.steps.logs import RunLogs
from elasticd.train.steps.standing import Standing
from elasticd.train.world import TrainerWorld


class ByRank:
    """Of one process. What is told goes the way of the gradients, so every method that tells raises
    GenerationLost if the world has ended."""

    def __init__(self, standing: Standing, logs: RunLogs) -> None:
        self._standing, self._logs = standing, logs
        self._ranks = standing.ranks

    def track(self, name: str, thing: Any) -> None:
        """Make ``thing``, of which each rank has its own, part of the state; or UsageError."""
        self.check_free(name)
        self._standing.track_by_rank(name, thing)

    def check_free(self, name: str) -> None:
        """Raise UsageError if each rank has something of its own under that name."""
        if name in self._ranks:
            raise UsageError(f"run.track: {name!r} is taken")

    def told(self, name: str) -> list[Any]:
        """What all ranks that there were have told of their things of that name, the same on every
        rank; of one that is gone what it told last."""
        return self._ranks.told_under(name)

    def level(self, world: TrainerWorld | None) -> None:
        """Tell the others, before a step, what isn't the same on all ranks."""
        words = self._logs.level(world, self._ranks.word)
        if words and world is not None:
            self._ranks.take_place(words, world.rank)

    def hear(self, world: TrainerWorld, step: int) -> Mapping[int, mx.array]:
        """What all ranks have of their own, as it belongs to ``step``."""
        ranks = self._ranks
        if not ranks.anybody:
            return ranks.told
        if world.size == 1:
            return ranks.hear([ranks.message])
        told = Gathering(self._standing.seat, world, step).messages(ranks.message)
        return ranks.hear(told)
