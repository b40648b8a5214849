"""Are the samples the same on every rank? One of them is compared now and then.

Each rank fetches its own grains only, so a sample that differs would go unseen: the gradients that
it leads to are nobody else's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from elasticd.train.steps.data import IndexedSource, Source
from elasticd.train.steps.likeness import sample_digest
from elasticd.train.steps.randomness import derive
from elasticd.train.steps.sampling import Batches
from elasticd.train.steps.seat import Seat
from elasticd.train.world import TrainerWorld


class Witness:
    """A source that shows the others one sample of its first step, and of each step in which the
    parameters are compared."""

    def __init__(
        self, source: Source, seat: Seat, world: Callable[[], TrainerWorld | None]
    ) -> None:
        self._source, self._seat, self._world = source, seat, world
        self._shown = 0

    def samples(self, step: int, grain: int) -> list[Any]:
        found = self._source.samples(step, grain)
        self._show_once(step)
        return found

    def grains_end(self, step: int) -> None:
        """A rank without any grain of ``step`` shows its sample, too: while the others compute. Not
        one of a stream, which it would have to read up to there."""
        if isinstance(self._source, IndexedSource):
            self._show_once(step)

    def _show_once(self, step: int) -> None:
        world, every = self._world(), self._seat.spec.recovery.verify_every
        due = every and step != self._shown and (step == 1 or step % every == 0)
        if due and world is not None and world.size > 1:
            self._shown = step
            self._show(world, step)

    def _show(self, world: TrainerWorld, step: int) -> None:
        spec = self._seat.spec
        size = spec.batch.global_
        position = (step - 1) * size + derive(spec.train.seed, "witness", step) % size
        digest = sample_digest(self._source.at(step, position))
        name = self._source.name(step, position)
        self._seat.sampled(world, step, position, digest, name)

    def positions(self, step: int, grain: int) -> range:
        return self._source.positions(step, grain)

    def at(self, step: int, position: int) -> Any:
        return self._source.at(step, position)

    def news(self) -> list[str]:
        return self._source.news()

    def cut(self, batches: Batches) -> None:
        self._source.cut(batches)

    def epoch(self, step: int) -> int:
        return self._source.epoch(step)

    def name(self, step: int, position: int) -> str:
        return self._source.name(step, position)

    def digests(self) -> Mapping[str, str]:
        return self._source.digests()

    def describe(self) -> str:
        return self._source.describe()
