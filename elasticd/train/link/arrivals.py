"""What a daemon has brought its trainer, until the training thread takes it.

Descriptors come with it, which are closed here when something newer makes them void.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from elasticd.train.steps.seat import Delivery, Files
from elasticd.train.world import World
from elasticd.types import Tag


class Arrivals:
    """The newest world, state and delivery. Whoever calls has the session's lock."""

    def __init__(self) -> None:
        self._world: tuple[World, list[int]] | None = None
        self._files: tuple[Tag, Files] | None = None
        self._delivery: Delivery | None = None

    @property
    def world(self) -> World | None:
        """The one to be entered next."""
        return None if self._world is None else self._world[0]

    @property
    def waiting(self) -> bool:
        """Whether there is a world or a delivery to be taken."""
        return self._world is not None or self._delivery is not None

    def offer(self, world: World, fds: list[int]) -> None:
        """A world to be entered, with the descriptors of its reducer."""
        self._drop_world()
        self._world = world, fds

    def take_world(self) -> tuple[World, list[int]] | None:
        world, self._world = self._world, None
        return world

    def bring(self, generation: Tag, files: Files) -> None:
        """The state that the world of ``generation`` starts from."""
        if self._files is not None:
            if generation < self._files[0]:
                close(files.fds)  # late: a newer world's state is here already
                return
            close(self._files[1].fds)
        self._files = generation, files

    def brought(self, generation: Tag) -> bool:
        return self._files is not None and self._files[0] == generation

    def take_files(self) -> Files:
        """What :meth:`brought` said is here."""
        assert self._files is not None
        (_, files), self._files = self._files, None
        return files

    def deliver(self, delivery: Delivery) -> None:
        """A state to be taken outside of a world."""
        self._drop_delivery()
        self._delivery = delivery

    def take_delivery(self) -> Delivery | None:
        delivery, self._delivery = self._delivery, None
        return delivery

    def freeze(self) -> None:
        """Only a state that was brought outlives a freeze: it names its generation."""
        self._drop_world()
        self._drop_delivery()

    def _drop_world(self) -> None:
        if self._world is not None:
            close(self._world[1])
            self._world = None

    def _drop_delivery(self) -> None:
        if self._delivery is not None:
            close(self._delivery.fds)
            self._delivery = None


def close(fds: Sequence[int]) -> None:
    for fd in fds:
        os.close(fd)
