"""Who wrote one state, whose was another than the others', and which leader has heard of it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from elasticd.checkpoints.manifest import Manifest
from elasticd.core.words.messages import Message
from elasticd.core.words.shards import Digest, ShardsWritten
from elasticd.types import NodeId, Tag

from .disk import is_spoilt

if TYPE_CHECKING:
    from .trainer import Trainer


@dataclass(slots=True)
class Writers:
    """Of all jobs; a step of a world is one state."""

    wrote: dict[tuple[Tag, int], dict[Trainer, bool]] = field(default_factory=dict)
    """By world and step, who writes a checkpoint, and whether its state is spoilt."""
    heard: dict[tuple[str, Tag, int], set[NodeId]] = field(default_factory=dict)
    """By node, world and step, of whose state it has been told."""

    def writes(self, trainer: Trainer, generation: Tag, step: int) -> None:
        self.wrote.setdefault((generation, step), {})[trainer] = trainer.spoilt

    def skips(self, trainer: Trainer, generation: Tag, step: int) -> None:
        self.wrote.get((generation, step), {}).pop(trainer, None)

    def hears(self, leader: str, node: NodeId, told: Message) -> None:
        """A node is told something by another."""
        if isinstance(told, ShardsWritten | Digest):
            self.heard.setdefault((leader, told.generation, told.step), set()).add(node)

    def announced(self, leader: str, members: Collection[NodeId], manifest: Manifest) -> str:
        """What is wrong with a checkpoint that ``members`` have and their ``leader`` announces, or
        nothing. What is behind a cut link it can't know."""
        generation, step = manifest.generation, manifest.step
        wrote = self.wrote.get((generation, step), {})
        every = list(wrote.values())
        # From those who have ended no word may have come.
        living = [spoilt for trainer, spoilt in wrote.items() if trainer.runs]
        known = {*members, *self.heard.get((leader, generation, step), ())}
        of_known = [spoilt for trainer, spoilt in wrote.items() if trainer.host.name in known]
        outvoted = all(2 * sum(votes) < len(votes) for votes in (every, living, of_known))
        if is_spoilt(manifest) and outvoted:
            return f"checkpoint {step} is announced with the bits of who diverged"
        return ""
