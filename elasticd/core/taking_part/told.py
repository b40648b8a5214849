"""What a member has told of its shards and of its trainer's states: told again to a new leader. It
may have to finish the work, or to find whose state differs. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from elasticd.checkpoints.manifest import Stored
from elasticd.core.words.records import World, keeps_own
from elasticd.core.words.shards import Digest, ShardsFailed, ShardsWritten, newest_states
from elasticd.types import NO_TAG, Lineage, NodeId, Stamp, Tag

_KEPT = 4
"""Of so many states."""


@dataclass(slots=True)
class ToldShards:
    """Of one job; the oldest are forgotten."""

    written: list[ShardsWritten] = field(default_factory=list)
    skipped: list[ShardsFailed] = field(default_factory=list)
    """What was not written in the present world: a leader that doesn't know waits for it."""

    def again(self) -> list[ShardsFailed | ShardsWritten]:
        """All that a leader has to know which has heard nothing yet."""
        return [*self.skipped, *self.written]

    def enter_world(self) -> None:
        """In a newer world nothing was skipped yet."""
        self.skipped = []

    def wrote(self, written: ShardsWritten) -> None:
        """Shards are durable here; of the same ones nothing else is any more."""
        others = [old for old in self.written if not _replaces(written, old)]
        self.written = [*others[1 - _KEPT :], written]
        self.skipped = [old for old in self.skipped if _state(old) != _state(written)]

    def skips(self, skipped: ShardsFailed) -> None:
        """Shards of a checkpoint are not written here."""
        others = [old for old in self.skipped if _state(old) != _state(skipped)]
        self.skipped = [*others[1 - _KEPT :], skipped]

    def finished(self, stored: Iterable[Stored]) -> None:
        """These checkpoints are final on the disk: nobody has to finish them, or older ones."""
        newest: dict[Lineage, int] = {}
        for manifest in (item.manifest for item in stored):
            newest[manifest.lineage] = max(newest.get(manifest.lineage, -1), manifest.step)
        self.written = [w for w in self.written if w.step > newest.get(w.lineage, -1)]


@dataclass(slots=True)
class ToldStates:
    """What the trainer's states were like, of the newest that were compared. What it had before it
    took another's state says nothing of the one that it has."""

    since: Tag = NO_TAG
    """The world in which it took that."""
    told: list[Digest] = field(default_factory=list)
    """As of the present world: leaders compare who is in it."""

    def lost(self) -> None:
        """It was another trainer's, which has ended: the one that is about to enter its first world
        has another state, be it one that grew by updates alone."""
        self.told = []

    def recall(self, world: World) -> None:
        """A daemon goes on after another: what the trainer tells again of older worlds may be of a
        state that it has no more."""
        self.since = world.generation

    def took(self, me: NodeId, world: World, took: Tag) -> None:
        """The trainer says that it has the state which it was brought in the world ``took``. If it
        was to be brought one in this world, that one counts, and no older one."""
        if keeps_own(_source(me, world)):
            self.since = took

    def enter(self, me: NodeId, world: World) -> None:
        """The trainer goes on in a newer world, perhaps with another's state."""
        if keeps_own(_source(me, world)):
            self.told = [replace(told, generation=world.generation) for told in self.told]
        else:
            self.since, self.told = world.generation, []

    def hear(self, told: Digest, world: World | None) -> Digest | None:
        """What is to be told of it now; it may come behind the end of its world."""
        if told.generation < self.since:
            return None
        if world is not None:
            told = replace(told, generation=max(told.generation, world.generation))
        self.told = newest_states([*(o for o in self.told if o.stamp != told.stamp), told])
        return told


@dataclass(slots=True)
class ToldByMember:
    """Both."""

    shards: ToldShards = field(default_factory=ToldShards)
    states: ToldStates = field(default_factory=ToldStates)

    def again(self) -> list[ShardsFailed | ShardsWritten | Digest]:
        """All that a leader has to know which has heard nothing yet."""
        return [*self.shards.again(), *self.states.told]

    def enter(self, me: NodeId, world: World) -> list[Digest]:
        """A newer world; what its leader is to know: others tell only now of what they had then."""
        self.shards.enter_world()
        self.states.enter(me, world)
        return list(self.states.told)

    def wrote(self, written: ShardsWritten, world: World | None) -> list[ShardsWritten | Digest]:
        """Shards are durable here. What is to be told of it."""
        self.shards.wrote(written)
        own = written.own()
        told = None if own is None else self.states.hear(own, world)
        return [written] if told in (None, own) else [written, told]


def _source(me: NodeId, world: World) -> str:
    return world.sources[world.members.index(me)]


def _state(said: ShardsWritten | ShardsFailed) -> tuple[Lineage, int, Stamp, int]:
    return said.lineage, said.step, said.stamp, said.count


def _replaces(new: ShardsWritten, old: ShardsWritten) -> bool:
    """Whether the files that ``old`` tells of are now those of ``new``."""
    if _state(old) != _state(new):
        return False
    return {index for index, _, _ in old.shards} <= {index for index, _, _ in new.shards}
