"""What a member has told of the shards that it wrote, or did not: told again to a new leader, which
may have to finish the work. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from elasticd.checkpoints.manifest import Stored
from elasticd.core.words.shards import ShardsFailed, ShardsWritten
from elasticd.types import Lineage, Stamp

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


def _state(said: ShardsWritten | ShardsFailed) -> tuple[Lineage, int, Stamp, int]:
    return said.lineage, said.step, said.stamp, said.count


def _replaces(new: ShardsWritten, old: ShardsWritten) -> bool:
    """Whether the files that ``old`` tells of are now those of ``new``."""
    if _state(old) != _state(new):
        return False
    return {index for index, _, _ in old.shards} <= {index for index, _, _ in new.shards}
