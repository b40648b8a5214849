"""One checkpoint on its way: which nodes have what of it, and which can't."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import dataclass, field, replace

from elasticd.checkpoints.manifest import Manifest, Shard, Stored
from elasticd.core.saving.copies import ShardCopies
from elasticd.core.saving.filing import Filing
from elasticd.core.saving.testimony import Testimony
from elasticd.core.words.shards import ManifestStored, ShardsFailed, ShardsWritten
from elasticd.settings.job import JobSpec
from elasticd.types import JobId, Lineage, NodeId, Point, Stamp, Tag

_COPIES = 3
"""So often a node copies shards which it should have already."""


@dataclass(frozen=True, order=True, slots=True)
class Key:
    """A state and into how many shards it was cut."""

    lineage: Lineage
    step: int
    stamp: Stamp
    count: int

    @classmethod
    def of(cls, said: ShardsWritten | ShardsFailed | ManifestStored | Manifest) -> Key:
        return cls(said.lineage, said.step, said.stamp, said.count)

    @property
    def point(self) -> Point:
        return Point(self.lineage, self.step, self.stamp)


@dataclass(slots=True)
class Checkpoint:
    """A state whose shards are being written or whose manifest is being stored, or the newest
    consistent one, of which no copy may be missing for long."""

    key: Key
    generation: Tag
    began: float
    """When the first word of it came, in monotonic seconds."""
    copies: ShardCopies = field(init=False)
    said: Testimony = field(default_factory=Testimony)
    filing: Filing = field(default_factory=Filing)
    heard: set[NodeId] = field(default_factory=set)
    """Nodes that have written their shards, or will not."""
    failed: dict[NodeId, str] = field(default_factory=dict)
    """Nodes that can't store their part, and why."""
    pulling: dict[NodeId, float] = field(default_factory=dict)
    """Nodes that were asked to copy shards and have not answered, and when that was. Who takes too
    long stays here, and has failed: its answer may come yet."""
    void: set[NodeId] = field(default_factory=set)
    """Nodes that were asked to copy what counts no more, and have not answered."""
    disputed: bool = False
    """The world that writes it has written something else than what a disk has of it already."""
    lacked: dict[NodeId, int] = field(default_factory=dict)
    """How often nodes had not what they were to have."""
    gone_at: float | None = None
    """Since when a shard that the manifest names is on no node of the view, in monotonic
    seconds."""
    lost: bool = False
    """Nobody has a shard any more: the last copy is rotten, or did not come back with its node."""
    is_coming: bool = False
    """A world began at this state, and writes all of it again."""

    def __post_init__(self) -> None:
        self.copies = ShardCopies(self.key.count)

    @property
    def lineage(self) -> Lineage:
        return self.key.lineage

    @property
    def step(self) -> int:
        return self.key.step

    @property
    def stamp(self) -> Stamp:
        return self.key.stamp

    @property
    def manifest(self) -> Manifest | None:
        return self.filing.manifest

    @property
    def complete(self) -> bool:
        """Every shard is on some node, and the model's digest known. A manifest decides; without
        one, writers who differ leave it open which shards count."""
        if not self.said.digest or not self.copies.whole:
            return False
        return self.manifest is not None or not self.said.contested

    def final(self) -> int:
        """On how many nodes even the least held shard is with the manifest beside it: a shard
        without one is, after a crash, nothing that anybody knows of."""
        return self.copies.fewest(self.filing.stored)

    def named(self, nodes: Set[NodeId]) -> int:
        """As :meth:`final`, of those of ``nodes`` that the manifest names."""
        manifest, stored = self.filing.manifest, self.filing.stored
        return 0 if manifest is None else self.copies.named(manifest.holders, nodes & stored)

    # --- what is heard of it ----------------------------------------------------------------------

    def wrote(self, node: NodeId, written: ShardsWritten, now: float) -> list[int]:
        """``node`` has these shards. Returns those that differ from what others have said."""
        if written.generation != self.generation:
            self.generation, self.disputed = written.generation, False
        if not written.check:  # else it tells of what it has written itself, perhaps once more
            self.pulling.pop(node, None)
        self.failed.pop(node, None)
        self.heard.add(node)
        self.said.take(node, written, now)
        # With a manifest it is that one's model which counts, not the first writer's.
        agrees = self.said.agrees(written) and (
            self.manifest is not None or self.said.checks(written)
        )
        differ = []
        for index, size, digest in written.shards:
            same = self.copies.same(index, (size, digest))
            if same and agrees:
                self.copies.add(node, (index,))
                self.filing.wrote(node)
            else:
                differ.append(index)
                if node not in self.filing.stored:
                    self.copies.lose(node, index)  # it has written over what was right
        self.disputed = self.disputed or (bool(differ) and self.manifest is not None)
        return differ

    def refuse(self, node: NodeId, written: ShardsWritten, now: float) -> list[int]:
        """``node`` has these shards of another state. Returns those that are known, and differ."""
        self.hear(node)
        self.said.refuse(node, written, now)
        return [i for i, size, digest in written.shards if self.copies.differs(i, (size, digest))]

    def stored(self, node: NodeId) -> None:
        """``node`` has the manifest."""
        self.filing.has(node)
        copies, manifest = self.copies, self.filing.manifest
        if manifest is None or copies.has(node) or self.failed.pop(node, None) is None:
            return
        copies.add(node, manifest.held_by(node))  # its disk has come back after all

    def announced(self, manifest: Manifest) -> bool:
        """A disk has a manifest of it. False if that is of other shards than those known here."""
        if not self.copies.settle({s.index: (s.bytes, s.digest) for s in manifest.shards}):
            return False
        filing, known = self.filing, self.filing.manifest
        self.said.believe(manifest.digest)
        if known is None or not filing.stored:
            # What is announced is to be found on the disks under the same generation.
            filing.say(replace(manifest, holders=(known or manifest).holders))
        return True

    def take(self, manifest: Manifest, disputed: bool) -> None:
        """A disk has a manifest of it; ``disputed``: somebody has said otherwise."""
        self.disputed = disputed
        self.announced(manifest)

    def hear(self, node: NodeId) -> None:
        """``node`` has written its shards, or will not."""
        self.heard.add(node)

    def pull(self, node: NodeId, now: float) -> None:
        """``node`` is asked to copy shards."""
        self.pulling[node] = now
        self.void.discard(node)

    def copied_in_vain(self, node: NodeId) -> bool:
        """Whether ``node`` has copied what counts no more."""
        asked = node in self.void
        self.void.discard(node)
        return asked

    def not_pulled(self, node: NodeId) -> bool:
        """``node`` has not copied any. False if it was not to."""
        return self.pulling.pop(node, None) is not None

    def fail(self, node: NodeId, reason: str) -> None:
        """``node`` can't store its part."""
        self.hear(node)
        self.failed[node] = reason

    def write_again(self) -> None:
        """A world begins at this state, and writes all of it."""
        self.lost, self.gone_at, self.is_coming = False, None, True

    def look_for_shards(self, now: float, back_seconds: float, coming_seconds: float) -> None:
        """Give a shard up that no node of the view has: after so long if a node may be back with
        it, or if somebody is about to write or to copy it."""
        if self.complete:
            self.lost, self.gone_at, self.is_coming = False, None, False
        elif self.manifest is None:
            self.gone_at = None
        else:
            self.gone_at = now if self.gone_at is None else self.gone_at
            wait = coming_seconds if self.is_coming or self.copying() else back_seconds
            self.lost = self.lost or now >= self.gone_at + wait

    def rots(self, found: Iterable[tuple[int, NodeId]]) -> None:
        """These copies are not what they should be."""
        for index, node in found:
            self.lost = self.copies.lose(node, index) or self.lost

    def lacks(self, node: NodeId) -> bool:
        """``node`` has not taken the manifest, since something else is where its shards should be:
        a copy for an earlier world came late, maybe. Whether it is to copy them; not if that has
        happened again and again."""
        self.forget(node)
        self.hear(node)
        self.lacked[node] = self.lacked.get(node, 0) + 1
        return self.lacked[node] <= _COPIES

    def reject(self, node: NodeId) -> None:
        """The disk of ``node`` works, and has not taken the manifest."""
        self.forget(node)
        self.hear(node)
        self.filing.reject(node)

    def compare(self, reports: Mapping[NodeId, tuple[Stored, ...]]) -> None:
        """Take over from what nodes report what they have of it, final."""
        assert self.manifest is not None
        for node in sorted(reports):
            same = (i for i in reports[node] if i.manifest.same_state(self.manifest))
            self._found(node, next(same, None))

    def _found(self, node: NodeId, item: Stored | None) -> None:
        if item is None:
            if node in self.filing.stored:
                self.forget(node)
            return
        self.filing.had(node, self.began)
        self.copies.put(node, item.held)

    def without(self, odd: Collection[NodeId]) -> Checkpoint:
        """What there is of it if nothing counts that these have said, nor what was copied."""
        fresh = Checkpoint(self.key, self.generation, self.began)
        fresh.failed |= self.failed
        fresh.heard |= self.heard
        fresh.void |= self.void.union(self.pulling)
        refused = self.said.refused.union(odd)
        for node, word in self.said.words.items():
            take = fresh.refuse if node in refused else fresh.wrote
            take(node, word, self.said.heard_at[node])
        return fresh

    def forget(self, node: NodeId) -> None:
        """A node is gone, or was started again and swept its disk."""
        self.copies.drop(node)
        self.filing.forget(node)
        self.heard.discard(node)
        self.pulling.pop(node, None)
        self.failed.pop(node, None)

    def restart(self, gone: Iterable[NodeId]) -> None:
        """A new view, without these or with other runs of them."""
        for node in gone:
            self.forget(node)
        self.pulling.clear()
        self.filing.forget_unanswered()

    # --- what there is to tell --------------------------------------------------------------------

    def unanswered(self) -> list[tuple[NodeId, float]]:
        """Who was asked to store the manifest and has not answered, and when that was."""
        return [(node, at) for node, at in self.filing.open() if node not in self.failed]

    def copying(self) -> list[tuple[NodeId, float]]:
        """Who was asked to copy shards and has not answered, and when that was."""
        return [(node, at) for node, at in self.pulling.items() if node not in self.failed]

    def skipped(self, node: NodeId) -> bool:
        """Whether ``node`` has written nothing of it, and said so: it may be busy with another."""
        return node in self.heard and node not in self.said.words and not self.copies.has(node)

    def can_store(self, node: NodeId) -> bool:
        """Whether the manifest is of use on ``node``."""
        refuses = node in self.failed and not self.copies.has(node)
        return node not in self.filing.rejected and not refuses

    def stands(self, wanted: int, nodes: Collection[NodeId]) -> bool:
        """Whether the manifest that was told names enough of ``nodes``, and nobody in vain."""
        if self.manifest is None:
            return False
        rows = zip(self.manifest.holders, self.copies.listed(), strict=True)
        return all(
            # A listed holder that has nothing would refuse the manifest.
            set(named) <= set(held) and len(set(named).intersection(nodes)) >= wanted
            for named, held in rows
        )

    def made(
        self,
        job: JobId,
        spec: JobSpec,
        parent: Point | None,
        wall: float,
        last: bool,
        writers: Collection[NodeId],
    ) -> Manifest:
        """The manifest of what is known now; ``last``: the script stops there. ``writers`` are all
        who have kept this state."""
        key = self.key
        return Manifest(
            job=job,
            lineage=key.lineage,
            parent=parent,
            step=key.step,
            stamp=key.stamp,
            generation=self.generation,
            samples=key.step * spec.batch.global_,
            micro=spec.batch.micro,
            count=key.count,
            shards=tuple(Shard(*row) for row in self.copies.table()),
            holders=self.copies.listed(),
            digest=self.said.digest,
            created_seconds=wall,
            metric=self.said.measured.metric,
            last=last,
            agreed=self.said.unanimous(writers),
        )
