"""What a daemon has brought its trainer, until the training thread takes it.

Something newer makes void what is here. Whatever is void is returned, for the driver to drop.
"""

from __future__ import annotations

from elasticd.core.words.trainers import LoadState, TakeState
from elasticd.train.protocol.effects import Cargo
from elasticd.train.world import TrainerWorld
from elasticd.types import Tag

Void = list[Cargo]


class Arrivals:
    """The newest world, state and delivery, each with its cargo."""

    def __init__(self) -> None:
        self._world: tuple[TrainerWorld, Cargo] | None = None
        self._state: tuple[LoadState, Cargo] | None = None
        self._delivery: tuple[TakeState, Cargo] | None = None

    @property
    def world(self) -> TrainerWorld | None:
        """The one to be entered next."""
        return None if self._world is None else self._world[0]

    @property
    def waiting(self) -> bool:
        """Whether there is a world or a delivery to be taken."""
        return self._world is not None or self._delivery is not None

    def offer(self, world: TrainerWorld, cargo: Cargo) -> Void:
        """A world to be entered, with the way to its reducer."""
        before, self._world = self._world, (world, cargo)
        return _cargo_of(before)

    def take_world(self) -> tuple[TrainerWorld, Cargo] | None:
        taken, self._world = self._world, None
        return taken

    def bring(self, word: LoadState, cargo: Cargo) -> Void:
        """The state that a world starts from."""
        before = self._state
        if before is not None and word.generation < before[0].generation:
            return [cargo]  # late: a newer world's state is here already
        self._state = word, cargo
        return _cargo_of(before)

    def brought(self, generation: Tag) -> bool:
        return self._state is not None and self._state[0].generation == generation

    def take_state(self) -> tuple[LoadState, Cargo]:
        """What :meth:`brought` said is here."""
        assert self._state is not None
        taken, self._state = self._state, None
        return taken

    def deliver(self, word: TakeState, cargo: Cargo) -> Void:
        """A state to be taken outside of a world."""
        before, self._delivery = self._delivery, (word, cargo)
        return _cargo_of(before)

    def take_delivery(self) -> tuple[TakeState, Cargo] | None:
        taken, self._delivery = self._delivery, None
        return taken

    def freeze(self) -> Void:
        """Only a state that was brought outlives a freeze: it names its generation."""
        return [*_cargo_of(self.take_world()), *_cargo_of(self.take_delivery())]


def _cargo_of(arrival: tuple[object, Cargo] | None) -> Void:
    return [] if arrival is None else [arrival[1]]
