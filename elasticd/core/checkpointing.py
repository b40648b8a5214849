"""The leader's account of one job's checkpoints: from shards on disks to a consistent checkpoint.

A checkpoint is announced when each shard and the manifest are durable on as many living nodes as
the job wants. A leader that comes later learns from the members which shards and manifests they
have, and finishes what its predecessor began.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from elasticd.checkpoints import choose, interval
from elasticd.checkpoints.manifest import Manifest, Shard, Stored
from elasticd.core.context import Context
from elasticd.core.messages import (
    Interval,
    ManifestStore,
    ManifestStored,
    PullShards,
    ShardsWritten,
    View,
    World,
)
from elasticd.job import JobSpec
from elasticd.types import JobId, Lineage, NodeId, Point, Stamp, Tag

_MAX_ENTRIES = 8
"""Older unfinished checkpoints are forgotten: newer ones are on their way."""

_WORTH_A_CHANGE = 1.3
_NOTICE_SECONDS = 2.0

Key = tuple[Lineage, int, Stamp, int]


@dataclass(slots=True)
class Entry:
    """A state whose shards are being written or whose manifest is being stored."""

    lineage: Lineage
    step: int
    stamp: Stamp
    count: int
    generation: Tag
    digest: str
    sizes: dict[int, tuple[int, str]] = field(default_factory=dict)
    holders: dict[int, set[NodeId]] = field(default_factory=dict)
    manifest: Manifest | None = None
    asked: set[NodeId] = field(default_factory=set)
    """Nodes that were told to store the manifest."""
    stored: set[NodeId] = field(default_factory=set)
    refused: set[NodeId] = field(default_factory=set)
    pulling: set[NodeId] = field(default_factory=set)
    stall_seconds: float = 0.0
    write_seconds: float = 0.0
    cost_seconds: float = 0.0
    step_seconds: float = 0.0
    metric: float | None = None
    mode: str = ""
    tensors: dict[int, dict[NodeId, dict[str, str]]] = field(default_factory=dict)
    """Per shard, as its writers said: the beginning of each tensor's digest."""
    models: dict[NodeId, str] = field(default_factory=dict)
    """The model's digest, as each writer found it."""

    @property
    def key(self) -> Key:
        return self.lineage, self.step, self.stamp, self.count

    @property
    def complete(self) -> bool:
        """Every shard is on some node."""
        return all(self.holders.get(index) for index in range(self.count))

    def fewest(self) -> int:
        return min(len(self.holders[index]) for index in range(self.count))

    def forget(self, node: NodeId) -> None:
        """A node is gone, or was started again and swept its disk."""
        for holders in self.holders.values():
            holders.discard(node)
        for nodes in (self.asked, self.stored, self.refused, self.pulling):
            nodes.discard(node)


@dataclass(slots=True)
class Checkpoints:
    """Of one job, while its driver lives."""

    ctx: Context
    job: JobId
    spec: JobSpec
    view: View
    world: World | None = None
    newest: Manifest | None = None
    """The newest consistent checkpoint."""
    entries: dict[Key, Entry] = field(default_factory=dict)
    parents: dict[Lineage, Point | None] = field(default_factory=dict)
    retry_at: float = 0.0
    changed: bool = False
    domains: dict[NodeId, str] = field(default_factory=dict)
    """Failure domains, where they are known."""
    every: int = 0
    """The interval that the members of the world go by; 0: that of the job."""
    failures: int = 0
    watched_since: float | None = None

    # --- what is heard ----------------------------------------------------------------------------

    def enter(self, world: World) -> None:
        """A world was formed or adopted."""
        self.world, self.every = world, 0
        self.failures = max(self.failures, world.recoveries)
        if self.watched_since is None:
            self.watched_since = self.ctx.now
        self.parents.setdefault(world.lineage, world.parent)

    def on_view(self, view: View, gone: Iterable[NodeId]) -> None:
        self.view = view
        for entry in self.entries.values():
            for node in gone:
                entry.forget(node)
            entry.pulling.clear()
            entry.asked &= entry.stored

    def learn(self, reports: Mapping[NodeId, tuple[Stored, ...]]) -> None:
        """What all members have of finished checkpoints; the newest may be half announced."""
        choice = choose.newest(reports)
        newest = self.newest.step if self.newest is not None else -1
        if choice is None or choice.manifest.step <= newest:
            return
        ours = set(self.entries)
        entry = self._of_manifest(choice.manifest)
        if entry is None:
            return
        for node in sorted(reports):
            for item in reports[node]:
                if item.manifest.same_state(choice.manifest):
                    entry.stored.add(node)
                    entry.asked.add(node)
                    for index in item.held:
                        entry.holders.setdefault(index, set()).add(node)
        # One that an earlier leader has finished, it has announced; ours is announced by advance().
        if entry.key not in ours and entry.complete and self._durable(entry):
            self._know(entry)

    def _of_manifest(self, manifest: Manifest) -> Entry | None:
        key = (manifest.lineage, manifest.step, manifest.stamp, manifest.count)
        entry = self.entries.get(key)
        if entry is None:
            entry = Entry(*key, manifest.generation, manifest.digest)
            self.entries[key] = entry
        rows = {s.index: (s.bytes, s.digest) for s in manifest.shards}
        if any(entry.sizes.get(index, row) != row for index, row in rows.items()):
            return None
        entry.sizes = rows
        entry.manifest = entry.manifest or manifest
        self.parents.setdefault(manifest.lineage, manifest.parent)
        return entry

    def on_shards(self, node: NodeId, written: ShardsWritten) -> None:
        key = (written.lineage, written.step, written.stamp, written.count)
        entry = self.entries.get(key)
        if not written.shards:
            # A pull that failed: it is tried again after a pause.
            if entry is not None:
                entry.pulling.discard(node)
                self.retry_at = self.ctx.now + self.ctx.timing.retry_seconds
            return
        if self.newest is not None and written.step <= self.newest.step:
            return
        if entry is None:
            entry = Entry(*key, written.generation, written.digest)
            self.entries[key] = entry
            self._bound()
        entry.stall_seconds = max(entry.stall_seconds, written.stall_seconds)
        entry.write_seconds = max(entry.write_seconds, written.write_seconds)
        entry.pulling.discard(node)
        entry.mode = written.mode or entry.mode
        entry.metric = written.metric if entry.metric is None else entry.metric
        entry.cost_seconds = max(entry.cost_seconds, written.cost_seconds)
        entry.step_seconds = max(entry.step_seconds, written.step_seconds)
        entry.models[node] = written.digest
        for (index, _, _), tensors in zip(written.shards, written.tensors, strict=False):
            entry.tensors.setdefault(index, {})[node] = dict(tensors)
        for index, size, digest in written.shards:
            known = entry.sizes.setdefault(index, (size, digest))
            if known != (size, digest) or entry.digest != written.digest:
                self._diverged(entry, node, index)
            else:
                entry.holders.setdefault(index, set()).add(node)

    def on_stored(self, node: NodeId, stored: ManifestStored) -> None:
        for entry in list(self.entries.values()):
            if entry.manifest is None or (entry.step, entry.stamp) != (stored.step, stored.stamp):
                continue
            if node not in entry.asked:
                continue
            if stored.ok:
                entry.stored.add(node)
            else:
                self.ctx.log("warning", "manifest not stored", node=node, reason=stored.reason)
                entry.forget(node)
                entry.refused.add(node)

    def covers(self, point: Point) -> bool:
        """Whether this state's checkpoint is made, or will be without anybody writing it again."""
        newest = self.newest
        if newest is not None and (newest.step, newest.stamp) == (point.step, point.stamp):
            return True
        same = [e for e in self.entries.values() if (e.step, e.stamp) == (point.step, point.stamp)]
        if any(e.manifest is not None and e.complete for e in same):
            return True
        for entry in same:
            # The next world writes the same files, under another lineage or with other cuts.
            del self.entries[entry.key]
        return False

    # --- what is to be done -----------------------------------------------------------------------

    def advance(self) -> None:
        """Go on with every entry as far as can be."""
        chosen: set[tuple[int, Stamp]] = set()
        order = sorted(self.entries.values(), key=lambda e: (e.manifest is None, e.step, e.key))
        for entry in order:
            name = (entry.step, entry.stamp)
            if self.newest is not None and entry.step <= self.newest.step:
                self.entries.pop(entry.key, None)
                continue
            if not entry.complete or name in chosen:
                continue
            chosen.add(name)
            if entry.fewest() < self._wanted(entry):
                self._pull(entry)
            else:
                self._store(entry)
                if self._durable(entry):
                    self._announce(entry)

    def deadlines(self) -> list[float]:
        short = any(
            e.complete and e.fewest() < self._wanted(e) and not e.pulling
            for e in self.entries.values()
        )
        return [self.retry_at] if short else []

    def _wanted(self, entry: Entry) -> int:
        """On how many nodes; only the last checkpoint makes do with those that can store it."""
        able = len(self.view.members)
        if entry.step == self.spec.train.steps:
            able = max(1, able - len(entry.refused))
        return min(self.spec.checkpoint.replicas, able)

    def _durable(self, entry: Entry) -> bool:
        """Whether a restore finds it without any one node: a shard whose node has no manifest yet
        is, after a crash, nothing that anybody knows of."""
        wanted = self._wanted(entry)
        final = (entry.holders.get(index, set()) & entry.stored for index in range(entry.count))
        return all(len(nodes) >= wanted for nodes in final)

    def _pull(self, entry: Entry) -> None:
        """Let nodes copy shards that too few hold: those beside a world of one have nothing to do.

        Nothing while members of the world that makes the checkpoint may still be writing.
        """
        world, wanted = self.world, self._wanted(entry)
        writers = world.members if world is not None else ()
        made_here = world is not None and world.generation == entry.generation
        if entry.pulling or self.ctx.now < self.retry_at:
            return
        if made_here and len(writers) >= wanted:
            return
        need = wanted - entry.fewest()
        full = [n for n in self.view.members if all(n in entry.holders[i] for i in entry.holders)]
        able = [n for n in self.view.members if n not in full and n not in entry.refused]
        used = {self.domains.get(n, "") for held in entry.holders.values() for n in held} - {""}
        able.sort(key=lambda n: (self.domains.get(n, "") in used, n in writers, n))
        rows = tuple((i, *entry.sizes[i]) for i in range(entry.count))
        sources = tuple(tuple(sorted(entry.holders[i])) for i in range(entry.count))
        for node in able[:need]:
            entry.pulling.add(node)
            pull = PullShards(
                self.job, entry.generation, entry.lineage, entry.step, entry.stamp, entry.count,
                entry.digest, rows, sources,
            )  # fmt: skip
            self.ctx.send(node, pull)

    def _store(self, entry: Entry) -> None:
        holders = tuple(tuple(sorted(entry.holders[i])) for i in range(entry.count))
        manifest = entry.manifest
        if manifest is None or any(
            # A listed holder that has nothing would refuse the manifest.
            set(listed) - held
            for listed, held in zip(manifest.holders, map(set, holders), strict=True)
        ):
            manifest = entry.manifest = self._manifest(entry, holders)
            entry.asked, entry.stored = set(), set()
        for node in self.view.members:
            if node not in entry.asked and node not in entry.refused:
                entry.asked.add(node)
                keep = self.spec.checkpoint.keep
                self.ctx.send(node, ManifestStore(self.job, manifest, keep))

    def _manifest(self, entry: Entry, holders: tuple[tuple[NodeId, ...], ...]) -> Manifest:
        return Manifest(
            job=self.job,
            lineage=entry.lineage,
            parent=self.parents.get(entry.lineage),
            step=entry.step,
            stamp=entry.stamp,
            generation=entry.generation,
            samples=entry.step * self.spec.batch.global_,
            micro=self.spec.batch.micro,
            count=entry.count,
            shards=tuple(Shard(i, *entry.sizes[i]) for i in range(entry.count)),
            holders=holders,
            digest=entry.digest,
            created_seconds=self.ctx.wall,
            metric=entry.metric,
        )

    def _know(self, entry: Entry) -> None:
        self.newest, self.changed = entry.manifest, True
        for old in [e for e in self.entries.values() if e.step <= entry.step]:
            del self.entries[old.key]

    def _announce(self, entry: Entry) -> None:
        manifest = entry.manifest
        assert manifest is not None
        self._know(entry)
        self.ctx.emit(
            "checkpoint_committed",
            f"step {manifest.step} is consistent",
            self.job,
            manifest.generation.counter,
            step=manifest.step,
            bytes=manifest.bytes,
            replicas=entry.fewest(),
            stall_seconds=entry.stall_seconds,
            write_seconds=entry.write_seconds,
            snapshot=entry.mode or None,
        )
        self._choose_interval(entry)

    def _choose_interval(self, entry: Entry) -> None:
        """With every_steps = "auto": what was measured at this checkpoint says when the next is."""
        world, ctx = self.world, self.ctx
        if self.spec.checkpoint.every_steps != "auto" or world is None or not entry.step_seconds:
            return
        cost = entry.stall_seconds + entry.cost_seconds
        watched = ctx.now - (self.watched_since or ctx.now)
        found = interval.best(cost, entry.write_seconds, entry.step_seconds, self.failures, watched)
        now = self.every or self.spec.checkpoint.interval_steps
        if max(found.steps, now) < _WORTH_A_CHANGE * min(found.steps, now):
            return
        self.every = found.steps
        # So far ahead that every member hears of it before it gets there.
        first = entry.step + max(2, round(_NOTICE_SECONDS / entry.step_seconds))
        for node in world.members:
            ctx.send(node, Interval(self.job, world.generation, found.steps, first))
        ctx.emit(
            "checkpoint_interval",
            f"every {found.steps} steps from {first} on: {found.reason}",
            self.job,
            world.generation.counter,
            every_steps=found.steps,
            step=first,
            cost_seconds=round(cost, 6),
            seconds=round(found.seconds, 3),
        )

    def _bound(self) -> None:
        while len(self.entries) > _MAX_ENTRIES:
            oldest = min(self.entries.values(), key=lambda e: (e.step, e.key))
            del self.entries[oldest.key]

    def _diverged(self, entry: Entry, node: NodeId, index: int) -> None:
        """Two nodes wrote one shard of one state with different content: say which tensor differs,
        and which of them is alone with its digests, as far as what was heard tells."""
        odd = self._odd(entry, index, node)
        others = sorted(n for n in entry.tensors.get(index, {}) if n != node)
        other = others[0] if others else None
        tensor = self._first_difference(entry, index, node, other)
        named = f"tensor {tensor!r}" if tensor else f"shard {index}"
        beside = f" on {node} and {other}" if other else f" on {node}"
        rank = None
        if self.world is not None and odd in self.world.members:
            rank = self.world.members.index(odd)
        self.ctx.emit(
            "fault_detected",
            f"divergence: {named} of step {entry.step} differs{beside}; {odd} is the odd one",
            self.job,
            entry.generation.counter,
            fault="divergence",
            rank=rank,
            culprit=odd,
            evidence=[f"{n} has model digest {d[:16]}" for n, d in sorted(entry.models.items())],
            seconds_to_detect=0.0,
            tensor=tensor,
            shard=index,
        )

    def _odd(self, entry: Entry, index: int, node: NodeId) -> NodeId:
        """Who differs from the most others: in the model's digest, or in this shard's tensors."""
        tensors = entry.tensors.get(index, {})

        def alone(one: NodeId) -> tuple[int, int]:
            models = sum(d != entry.models.get(one) for d in entry.models.values())
            return models, sum(own != tensors.get(one) for own in tensors.values())

        # Of two alone with each other the one that came later.
        return max(sorted({*tensors, node}), key=lambda one: (alone(one), one == node))

    def _first_difference(
        self, entry: Entry, index: int, node: NodeId, other: NodeId | None
    ) -> str | None:
        mine = entry.tensors.get(index, {}).get(node, {})
        theirs = entry.tensors.get(index, {}).get(other, {}) if other is not None else {}
        names = sorted(mine.keys() | theirs.keys()) if mine and theirs else []
        return next((name for name in names if mine.get(name) != theirs.get(name)), None)
