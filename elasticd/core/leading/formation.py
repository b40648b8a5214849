"""How the members of a world come together, as its leader sees it.

    noticed ──the next view is sure to know──▶ ordered ──all but the last listen──▶ ready, all

The last member connects its ring only when the first ones listen; the others go on when it does.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from elasticd.core.context import Context
from elasticd.core.words.records import Heard, View, World
from elasticd.core.words.worlds import Continue, Form, Go, Listening, Noted, Notice, Ready
from elasticd.recovery.quorum import holds
from elasticd.types import NodeId


@dataclass(slots=True)
class Formation:
    """Of the newest world of one job, while its driver lives."""

    ctx: Context
    world: World | None = None
    ordered: bool = False
    """Its members were told to form it."""
    noted: set[NodeId] = field(default_factory=set)
    """Who knows of it."""
    listening: set[NodeId] = field(default_factory=set)
    ready: set[NodeId] = field(default_factory=set)

    def begin(self, world: World, view: View) -> None:
        """Have ``world`` formed."""
        self.world, self.ordered, self.noted = world, False, set(world.members)
        self.listening, self.ready = set(), set()
        self._order(world, view)
        if not self.ordered:
            heard = Heard(world.job, world.generation)
            for node in view.members:
                self.ctx.send(node, Notice(view.epoch, heard))

    def _order(self, world: World, view: View) -> None:
        """Once the next primary view is sure to know of it."""
        if not self.ctx.strict or holds(view.members, self.noted):
            self.ordered = True
            for node in world.members:
                self.ctx.send(node, Form(world))

    def _current(self, message: Noted | Listening | Ready) -> World | None:
        world = self.world
        return world if world is not None and message.generation == world.generation else None

    def on_noted(self, node: NodeId, noted: Noted, view: View) -> None:
        world = self._current(noted)
        if world is not None and not self.ordered:
            self.noted.add(node)
            self._order(world, view)

    def on_listening(self, node: NodeId, message: Listening) -> None:
        world = self._current(message)
        if world is None:
            return
        self.listening.add(node)
        *first, last = world.members
        if node == last:
            self.ctx.send(world.members[0], Continue(world.job, world.generation))
        elif self.listening == set(first):
            self.ctx.send(last, Go(world.job, world.generation))

    def on_ready(self, node: NodeId, message: Ready) -> bool:
        """Whether all are ready now."""
        world = self._current(message)
        if world is None:
            return False
        self.ready.add(node)
        return self.ready == set(world.members)

    def late(self) -> list[NodeId]:
        """Members that are not ready."""
        return sorted(set(self.world.members) - self.ready) if self.world is not None else []

    def seconds(self) -> float:
        """How long it may take: states are loaded, perhaps, from peers or disks."""
        timing, world = self.ctx.timing, self.world
        loading = world is not None and any(s not in ("keep", "init") for s in world.sources)
        return timing.load_seconds if loading else timing.form_seconds
