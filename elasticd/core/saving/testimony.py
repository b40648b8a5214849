"""What the writers of one state said of it: the model, its tensors, how long the writing took."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import combinations

from elasticd.core.words.shards import ShardsWritten
from elasticd.recovery.divergence import Unlike, unlike
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
    """Of the state, as the first writer found it."""
    words: dict[NodeId, ShardsWritten] = field(default_factory=dict)
    """What each writer said of its own state. Who copied another's shards has none."""
    heard_at: dict[NodeId, float] = field(default_factory=dict)
    """When each writer's word came, in monotonic seconds."""
    refused: set[NodeId] = field(default_factory=set)
    """Writers whose word does not count: their state is not the others'."""
    measured: Measured = Measured()
    last: bool = False
    """The script has asked to stop there, as a writer says."""

    def take(self, node: NodeId, written: ShardsWritten, now: float) -> None:
        self.digest = self.digest or written.digest
        self.check = self.check or written.check
        self.measured = self.measured.beside(written)
        self.last = self.last or written.last
        if written.check:
            self.words[node], self.heard_at[node] = written, now

    @property
    def models(self) -> dict[NodeId, str]:
        """The check of its state, as each writer found it."""
        return {node: word.check for node, word in self.words.items()}

    def refuse(self, node: NodeId, written: ShardsWritten, now: float) -> None:
        """It tells who is odd, and nothing more."""
        self.words[node], self.heard_at[node] = written, now
        self.refused.add(node)

    @property
    def contested(self) -> bool:
        """Whether the models of those who count differ."""
        return len(set(self._counted.values())) > 1

    @property
    def differs(self) -> bool:
        """Whether there is a writer, of those who count or not, whose model others don't have."""
        return self.contested or bool(self.refused)

    @property
    def unlike(self) -> Unlike | None:
        """What the script tracks and the writers have otherwise, where their models agree."""
        return unlike({node: dict(word.parts) for node, word in self.words.items()})

    def unanimous(self, nodes: Collection[NodeId]) -> bool:
        """Whether all of these have the same model, and have said so."""
        models = self.models
        return bool(nodes) and len({models.get(node, "") for node in {*nodes, *models}}) == 1

    def outvoted(self) -> list[NodeId]:
        """Whose model is another than that of more than half of the writers."""
        models = self._counted
        for most, votes in Counter(models.values()).most_common(1):
            if 2 * votes > len(models):
                return [node for node, check in models.items() if check != most]
        return []

    @property
    def _counted(self) -> dict[NodeId, str]:
        return {node: check for node, check in self.models.items() if node not in self.refused}

    def _tensors(self, index: int) -> dict[NodeId, dict[str, str]]:
        """Of a shard, as its writers said: the beginning of each tensor's digest."""
        return {
            node: dict(tensors)
            for node, word in self.words.items()
            for (number, _, _), tensors in zip(word.shards, word.tensors, strict=False)
            if number == index
        }

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
        tensors, models = self._tensors(index), self.models

        def alone(one: NodeId) -> tuple[int, int]:
            others = sum(check != models.get(one, check) for check in models.values())
            return others, sum(own != tensors.get(one, own) for own in tensors.values())

        return max(sorted({*self.words, node}), key=lambda one: (alone(one), one == node))

    def other(self, index: int, node: NodeId) -> NodeId | None:
        """Another writer of shard ``index``."""
        return min((n for n in self._tensors(index) if n != node), default=None)

    def first_difference(self, index: int, node: NodeId, other: NodeId | None) -> str | None:
        """The first tensor of a shard in which two writers differ, if both said enough."""
        tensors = self._tensors(index)
        mine = tensors.get(node, {})
        theirs = tensors.get(other, {}) if other is not None else {}
        names = sorted(mine.keys() | theirs.keys()) if mine and theirs else []
        return next((name for name in names if mine.get(name) != theirs.get(name)), None)

    def difference(self, count: int) -> tuple[str, tuple[NodeId, NodeId]] | None:
        """The first tensor of ``count`` shards in which two writers differ, and who they are."""
        for index in range(count):
            for node, other in combinations(sorted(self._tensors(index)), 2):
                if (tensor := self.first_difference(index, node, other)) is not None:
                    return tensor, (node, other)
        return None
