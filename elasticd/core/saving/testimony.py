"""What the writers of one state said of it: the model, its tensors, how long the writing took."""

from __future__ import annotations

from dataclasses import dataclass, field

from elasticd.core.words.shards import ShardsWritten
from elasticd.types import NodeId, SnapshotModeIfAny


@dataclass(frozen=True, slots=True)
class Measured:
    """At one checkpoint; of several writers the slowest counts."""

    stall_seconds: float = 0.0
    write_seconds: float = 0.0
    cost_seconds: float = 0.0
    step_seconds: float = 0.0
    mode: SnapshotModeIfAny = ""
    """How the state was held meanwhile."""
    metric: float | None = None

    def beside(self, written: ShardsWritten) -> Measured:
        """With what one more writer has measured."""
        return Measured(
            max(self.stall_seconds, written.stall_seconds),
            max(self.write_seconds, written.write_seconds),
            max(self.cost_seconds, written.cost_seconds),
            max(self.step_seconds, written.step_seconds),
            written.mode or self.mode,
            written.metric if self.metric is None else self.metric,
        )


@dataclass(slots=True)
class Testimony:
    """Two writers of one state should say the same of it; where they don't, it tells who is odd."""

    digest: str = ""
    """The model's; who writes the first shard tells it."""
    check: str = ""
    """Of the model, as the first writer found it."""
    models: dict[NodeId, str] = field(default_factory=dict)
    """The check of the model, as each writer found it."""
    tensors: dict[int, dict[NodeId, dict[str, str]]] = field(default_factory=dict)
    """Per shard, as its writers said: the beginning of each tensor's digest."""
    measured: Measured = Measured()

    def take(self, node: NodeId, written: ShardsWritten) -> None:
        self.digest = self.digest or written.digest
        self.check = self.check or written.check
        self.measured = self.measured.beside(written)
        if written.check:
            self.models[node] = written.check
        for (index, _, _), tensors in zip(written.shards, written.tensors, strict=False):
            self.tensors.setdefault(index, {})[node] = dict(tensors)

    def believe(self, digest: str) -> None:
        """A manifest has this of the model, whatever its writers say."""
        self.digest = digest

    def agrees(self, written: ShardsWritten) -> bool:
        """Whether a writer's model has the digest that is known, as far as it says."""
        return not written.digest or written.digest == self.digest

    def checks(self, written: ShardsWritten) -> bool:
        """Whether a writer's model has the first one's check, as far as it says."""
        return written.check in ("", self.check)

    def odd(self, index: int, node: NodeId) -> NodeId:
        """Who differs from the most others: in the model's digest, or in shard ``index``'s
        tensors. Of two that are alone with each other ``node``, which came later."""
        tensors = self.tensors.get(index, {})

        def alone(one: NodeId) -> tuple[int, int]:
            models = sum(d != self.models.get(one, d) for d in self.models.values())
            return models, sum(own != tensors.get(one) for own in tensors.values())

        return max(sorted({*tensors, node}), key=lambda one: (alone(one), one == node))

    def other(self, index: int, node: NodeId) -> NodeId | None:
        """Another writer of shard ``index``."""
        return min((n for n in self.tensors.get(index, {}) if n != node), default=None)

    def first_difference(self, index: int, node: NodeId, other: NodeId | None) -> str | None:
        """The first tensor of a shard in which two writers differ, if both said enough."""
        mine = self.tensors.get(index, {}).get(node, {})
        theirs = self.tensors.get(index, {}).get(other, {}) if other is not None else {}
        names = sorted(mine.keys() | theirs.keys()) if mine and theirs else []
        return next((name for name in names if mine.get(name) != theirs.get(name)), None)
