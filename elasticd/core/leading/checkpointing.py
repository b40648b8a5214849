"""The leader's account of one job's checkpoints: from shards on disks to a consistent checkpoint.

A checkpoint is announced when each shard and the manifest are durable on as many living nodes as
the job wants. Where a node's disk refuses, or takes nothing for too long, its part is copied to
another; with no other left the checkpoint makes do with fewer replicas, and says so. The newest one
is looked after: a copy that went with its node is made again elsewhere. A leader that comes later
learns from the members which shards and manifests they have, and finishes what its predecessor
began. Only checkpoints of the line that is trained now count.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from elasticd.checkpoints import choose, interval
from elasticd.checkpoints.line import descends
from elasticd.checkpoints.manifest import Manifest, Shard, Stored
from elasticd.core.context import Context
from elasticd.core.leading.entries import Entry, Key
from elasticd.core.words.records import View, World
from elasticd.core.words.shards import (
    Consistent,
    Interval,
    ManifestStore,
    ManifestStored,
    PullShards,
    ShardsFailed,
    ShardsWritten,
)
from elasticd.recovery.lineages import Left, is_left, merged, remaining
from elasticd.settings.job import JobSpec
from elasticd.types import JobId, Lineage, NodeId, Point, Stamp

_MAX_ENTRIES = 8
"""Older unfinished checkpoints are forgotten: newer ones are on their way."""

_WORTH_A_CHANGE = 1.3
_NOTICE_SECONDS = 2.0


@dataclass(slots=True)
class Checkpoints:
    """Of one job, while its driver lives."""

    ctx: Context
    job: JobId
    spec: JobSpec
    view: View
    world: World | None = None
    newest: Manifest | None = None
    """The newest consistent checkpoint of the line that is trained."""
    home: Entry | None = None
    """Where the newest one is."""
    entries: dict[Key, Entry] = field(default_factory=dict)
    parents: dict[Lineage, Point | None] = field(default_factory=dict)
    reports: dict[NodeId, tuple[Stored, ...]] = field(default_factory=dict)
    """What every member of the view said that it has; empty until all have spoken."""
    spoilt: Left = ()
    """What was written of states that differ, none of which a majority has."""
    retry_at: float = 0.0
    changed: bool = False
    domains: dict[NodeId, str] = field(default_factory=dict)
    """Failure domains, where they are known."""
    leaving: frozenset[NodeId] = frozenset()
    """Nodes that are drained: they may be switched off, so that others are to have copies."""
    every: int = 0
    """The interval that the members of the world go by; 0: that of the job."""
    failures: int = 0
    watched_since: float | None = None

    # --- what is heard ----------------------------------------------------------------------------

    def enter(self, world: World) -> None:
        """A world was formed or adopted: what is not of its line is none of its checkpoints."""
        self.world, self.every = world, 0
        self.failures = max(self.failures, world.recoveries)
        if self.watched_since is None:
            self.watched_since = self.ctx.now
        self.parents.setdefault(world.lineage, world.parent)
        if self.newest is not None and not self._in_line(self.newest.point):
            self.newest, self.home, self.changed = None, None, True
        for entry in [e for e in self.entries.values() if not self._in_line(e.point)]:
            del self.entries[entry.key]
        parent = world.parent
        if is_left(self.spoilt, world.lineage, world.step) or (
            parent is not None and is_left(self.spoilt, parent.lineage, parent.step)
        ):
            self.spoilt = ()  # there was nothing else to go on with
        base = self._of_manifest(world.manifest) if world.manifest is not None else None
        if base is not None and self.newest is None:
            self._know(base)
        self.learn(self.reports)

    def spoil(self, lineage: Lineage, step: int) -> None:
        """Nobody knows whose state after ``step`` is right: no checkpoint counts from there on but
        what is announced."""
        newest = self.newest
        if newest is not None and newest.lineage == lineage and newest.step >= step:
            return
        self.spoilt = merged(self.spoilt, ((lineage, step - 1),))
        for entry in list(self.entries.values()):
            if is_left(self.spoilt, entry.lineage, entry.step):
                del self.entries[entry.key]
        self.reports = remaining(self.reports, self.spoilt)

    def _in_line(self, point: Point) -> bool:
        """Whether the present world went through this state, as far as is known."""
        world = self.world
        return world is None or descends(world.lineage, point, self.parents)

    def on_view(self, view: View, gone: Iterable[NodeId]) -> None:
        self.view, self.reports = view, {}
        for entry in self._all():
            for node in gone:
                entry.forget(node)
            entry.pulling.clear()
            entry.asked = {n: at for n, at in entry.asked.items() if n in entry.stored}

    def _all(self) -> Iterator[Entry]:
        if self.home is not None:
            yield self.home
        yield from list(self.entries.values())

    def learn(self, reports: Mapping[NodeId, tuple[Stored, ...]]) -> None:
        """What all members have of finished checkpoints; the newest may be half announced."""
        self.reports, world = remaining(reports, self.spoilt), self.world
        if self.home is not None and reports:
            self._compare(self.home)
        choice = (
            choose.newest(reports)
            if world is None
            else choose.newest(reports, world.lineage, world.parent)
        )
        ours = set(self.entries)
        entry = self._found(choice.manifest) if choice is not None else None
        # One that an earlier leader has finished, it has announced; ours is announced by advance().
        if entry is not None and entry.key not in ours and entry.complete and self._durable(entry):
            self._know(entry)
        if world is None:
            return
        whole = choice.manifest.step if choice is not None else -1
        for manifest in [item.manifest for items in reports.values() for item in items]:
            # What is missing of it may be on nodes that have written it and have no manifest yet.
            if manifest.step > whole and self._in_line(manifest.point):
                self._found(manifest)

    def _found(self, manifest: Manifest) -> Entry | None:
        """Take a checkpoint in that disks have, if it is newer than the newest."""
        if self.newest is not None and manifest.step <= self.newest.step:
            return None
        entry = self._of_manifest(manifest)
        if entry is not None:
            self._compare(entry)
        return entry

    def _compare(self, entry: Entry) -> None:
        """Take over from the reports where a final checkpoint is."""
        assert entry.manifest is not None
        for node in sorted(self.reports):
            same = (i for i in self.reports[node] if i.manifest.same_state(entry.manifest))
            entry.found(node, next(same, None))

    def _of_manifest(self, manifest: Manifest) -> Entry | None:
        key = (manifest.lineage, manifest.step, manifest.stamp, manifest.count)
        entry = self.entries.get(key)
        if entry is None:
            entry = Entry(*key, manifest.generation, self.ctx.now, manifest.digest)
            self.entries[key] = entry
        rows = {s.index: (s.bytes, s.digest) for s in manifest.shards}
        if any(entry.sizes.get(index, row) != row for index, row in rows.items()):
            return None
        entry.sizes = rows
        known = entry.manifest
        if known is None or not entry.stored:
            # What is announced is to be found on the disks under the same generation.
            entry.manifest = replace(manifest, holders=(known or manifest).holders)
        self.parents.setdefault(manifest.lineage, manifest.parent)
        return entry

    def on_shards(self, node: NodeId, written: ShardsWritten) -> None:
        entry = self._entry(written)
        if entry is None:
            return
        if entry.manifest is None and entry.generation != written.generation:
            if written.generation < entry.generation:
                return
            # A later world writes all of it again: of a member that had diverged nothing may stay.
            entry = self.entries[entry.key] = Entry(*entry.key, written.generation, self.ctx.now)
        entry.generation = written.generation
        entry.take(written)
        entry.pulling.discard(node)
        entry.failed.pop(node, None)
        entry.heard.add(node)
        if written.check:
            entry.models[node] = written.check
        for (index, _, _), tensors in zip(written.shards, written.tensors, strict=False):
            entry.tensors.setdefault(index, {})[node] = dict(tensors)
        agrees = entry.agrees(written)
        for index, size, digest in written.shards:
            known = entry.sizes.setdefault(index, (size, digest))
            if known != (size, digest) or not agrees:
                self._diverged(entry, node, index)
                entry.disputed = entry.disputed or entry.manifest is not None
            else:
                entry.holders.setdefault(index, set()).add(node)

    def _entry(self, said: ShardsWritten | ShardsFailed) -> Entry | None:
        """The checkpoint that a member speaks of; None if it is over or of another line."""
        key = (said.lineage, said.step, said.stamp, said.count)
        if self.home is not None and self.home.key == key:
            return self.home
        over = self.newest is not None and said.step <= self.newest.step
        if over or is_left(self.spoilt, said.lineage, said.step):
            return None
        if key not in self.entries:
            if not self._in_line(Point(said.lineage, said.step, said.stamp)):
                return None
            self.entries[key] = Entry(*key, said.generation, self.ctx.now)
            self._bound()
        return self.entries.get(key)

    def on_failed(self, node: NodeId, failed: ShardsFailed) -> None:
        """A member has not stored its part, or a copy that it was asked for."""
        entry = self._entry(failed)
        if entry is None:
            return
        entry.heard.add(node)
        copies = node in entry.pulling
        if copies:
            entry.pulling.discard(node)
            self.retry_at = self.ctx.now + self.ctx.timing.retry_seconds
        if failed.refused:
            self._without(entry, node, failed.reason, keeps=copies)

    def on_stored(self, node: NodeId, stored: ManifestStored) -> None:
        key = (stored.lineage, stored.step, stored.stamp, stored.count)
        for entry in self._all():
            if entry.manifest is None or entry.key != key or node not in entry.asked:
                continue
            if stored.ok:
                entry.stored.add(node)
                if not entry.has(node) and entry.failed.pop(node, None) is not None:
                    for index in entry.manifest.held_by(node):
                        entry.holders.setdefault(index, set()).add(node)
                continue
            self.ctx.log("warning", "manifest not stored", node=node, reason=stored.reason)
            if stored.refused and entry.needs(node):
                if node not in entry.again:
                    self._tell_refused(entry, node, stored.reason)
                del entry.asked[node]
                entry.again[node] = self.ctx.now + self.ctx.timing.retry_seconds
            elif stored.refused:
                self._without(entry, node, stored.reason)
            else:
                entry.forget(node)
                entry.heard.add(node)
                entry.rejected.add(node)

    def _without(self, entry: Entry, node: NodeId, reason: str, keeps: bool = False) -> None:
        """A node can't store its part, or more than what it ``keeps``: others do, or the checkpoint
        has fewer replicas."""
        told = node in entry.failed
        if not keeps:
            entry.forget(node)
        entry.heard.add(node)
        entry.failed[node] = reason
        if not told:
            self._tell_refused(entry, node, reason)

    def _tell_refused(self, entry: Entry, node: NodeId, reason: str) -> None:
        self.ctx.emit(
            "checkpoint_refused",
            f"{node} does not store its part of step {entry.step}: {reason}",
            self.job,
            entry.generation.counter,
            step=entry.step,
            culprit=node,
            cause=reason,
        )

    def lineages(self) -> frozenset[Lineage]:
        """Those of which a checkpoint is known, be it an unfinished one."""
        return frozenset(entry.lineage for entry in self._all())

    def cut_of(self, point: Point) -> int:
        """Into how many shards this very state was cut where a disk has it already, perhaps without
        all of its shards; 0: nowhere.

        A disk takes one cut of a state, so that a world which writes the state again has to cut it
        in the same way.
        """
        counts = [
            item.manifest.count
            for items in self.reports.values()
            for item in items
            if item.manifest.point == point
        ]
        name = (point.lineage, point.step, point.stamp)
        # Word of a manifest may still be on its way to a disk.
        counts += [e.count for e in self._all() if e.manifest is not None and e.key[:3] == name]
        return max(counts, default=0)

    def disputed(self, step: int) -> bool:
        """Whether a disk has a part of the state after ``step`` that nobody can complete: all
        members of the world have written theirs, which is another."""
        found = [e for e in self.entries.values() if e.step == step and e.disputed]
        return any(not e.complete and not self._writing(e) for e in found)

    def covers(self, point: Point) -> bool:
        """Whether this state's checkpoint is made, or will be without anybody writing it again."""
        name = (point.step, point.stamp)
        newest = self.newest
        if newest is not None and (newest.step, newest.stamp) == name:
            return True
        kept = {
            node: [i for i in items if (i.manifest.step, i.manifest.stamp) == name]
            for node, items in self.reports.items()
        }
        if choose.newest(kept) is not None:
            return True
        same = [e for e in self.entries.values() if (e.step, e.stamp) == name]
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
            self._expire(entry)
            if not entry.complete or name in chosen:
                continue
            chosen.add(name)
            if self._further(entry) and self._durable(entry):
                self._announce(entry)
        if self.home is not None and self.home.complete and self.reports:
            self._expire(self.home)
            if self.home.named(self._lasting(self.home)) < self._wanted(self.home):
                self._further(self.home)

    def _further(self, entry: Entry) -> bool:
        """Have what is missing copied; whether each shard is on enough nodes."""
        if entry.fewest(self._lasting(entry)) < self._wanted(entry):
            self._pull(entry)
            return False
        self._store(entry)
        return True

    def _expire(self, entry: Entry) -> None:
        """Do without nodes that have said nothing for too long: their disks hang, maybe."""
        limit = self.ctx.timing.write_seconds
        late = self._writing(entry) if self.ctx.now >= entry.began + limit else []
        for node in late:
            self._without(entry, node, f"it has not written its shards in {limit:g} s")
        if self._durable(entry):
            return
        for node, at in sorted(entry.asked.items()):
            if node not in (*entry.stored, *entry.failed) and self.ctx.now >= at + limit:
                self._without(entry, node, f"it has not stored the manifest in {limit:g} s")

    def _writing(self, entry: Entry) -> list[NodeId]:
        """Members of the world that makes the checkpoint which may still be writing; once there is
        a manifest nobody is waited for."""
        world = self.world
        if world is None or world.generation != entry.generation or entry.manifest is not None:
            return []
        return [n for n in world.members if n in self.view.members and n not in entry.heard]

    def deadlines(self) -> list[float]:
        """When to call :meth:`advance` though nothing was heard."""
        limit, times = self.ctx.timing.write_seconds, []
        for entry in self._all():
            if self._writing(entry):
                times.append(entry.began + limit)
            wanted = self._wanted(entry)
            if entry.final() < wanted:
                waited = (n for n in entry.asked if n not in (*entry.stored, *entry.failed))
                times += [*(entry.asked[n] + limit for n in waited), *entry.again.values()]
            short = entry.fewest(self._lasting(entry)) < wanted and entry.complete
            if short and not entry.pulling and self._able(entry):
                times.append(self.retry_at)
        return times

    def _lasting(self, entry: Entry) -> frozenset[NodeId]:
        """The nodes whose copies count. A new checkpoint does not wait for more than it needs to
        survive any one node; then it is copied so that those who leave are not needed.
        """
        members = frozenset(self.view.members)
        return (members - self.leaving or members) if entry is self.home else members

    def _wanted(self, entry: Entry) -> int:
        """On how many nodes; no more than can store it."""
        able = self._lasting(entry) - entry.failed.keys()
        if entry.step == self.spec.train.steps:
            # Two sides that ended a job at one state have it under two names.
            able -= entry.rejected
        return min(self.spec.checkpoint.replicas, max(1, len(able)))

    def _durable(self, entry: Entry) -> bool:
        """Whether a restore finds it without any one node."""
        return entry.final() >= self._wanted(entry)

    def _able(self, entry: Entry) -> list[NodeId]:
        """Nodes that may copy shards, best first: of another failure domain, with nothing else to
        do, and whose disks were well last time."""
        unwell = {n for other in self._all() for n in other.failed}
        writers = self.world.members if self.world is not None else ()
        used = {self.domains.get(n, "") for held in entry.holders.values() for n in held} - {""}
        able = [
            n
            for n in self._lasting(entry)
            if not entry.full(n) and n not in entry.failed and n not in entry.rejected
        ]
        return sorted(
            able, key=lambda n: (n in unwell, self.domains.get(n, "") in used, n in writers, n)
        )

    def _pull(self, entry: Entry) -> None:
        """Let nodes copy shards that too few hold: those beside a world of one have nothing to do.

        Nothing while members of the world that makes the checkpoint may still be writing.
        """
        world, wanted = self.world, self._wanted(entry)
        enough = world is not None and len(world.members) >= wanted
        if entry.pulling or self.ctx.now < self.retry_at or (enough and self._writing(entry)):
            return
        rows = tuple((i, *entry.sizes[i]) for i in range(entry.count))
        for node in self._able(entry)[: wanted - entry.fewest(self._lasting(entry))]:
            entry.pulling.add(node)
            pull = PullShards(
                self.job, entry.generation, entry.lineage, entry.step, entry.stamp, entry.count,
                entry.digest, rows, entry.listed(),
            )  # fmt: skip
            self.ctx.send(node, pull)

    def _store(self, entry: Entry) -> None:
        holders = entry.listed()
        manifest, wanted, lasting = entry.manifest, self._wanted(entry), self._lasting(entry)
        if manifest is None or any(
            # A listed holder that has nothing would refuse the manifest.
            set(listed) - held or len(lasting.intersection(listed)) < wanted
            for listed, held in zip(manifest.holders, map(set, holders), strict=True)
        ):
            made = self._manifest(entry) if manifest is None else manifest
            manifest = entry.manifest = replace(made, holders=holders)
            entry.asked, entry.stored = {}, set()
            if entry is self.home:
                self.newest = manifest
        for node in self.view.members:
            unable = node in entry.rejected or (node in entry.failed and not entry.has(node))
            waits = node in entry.asked or entry.again.get(node, 0.0) > self.ctx.now
            if not unable and not waits:
                entry.asked[node] = self.ctx.now
                self.ctx.send(node, ManifestStore(self.job, manifest))

    def _manifest(self, entry: Entry) -> Manifest:
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
            holders=entry.listed(),
            digest=entry.digest,
            created_seconds=self.ctx.wall,
            metric=entry.metric,
        )

    def _know(self, entry: Entry) -> None:
        self.newest, self.home, self.changed = entry.manifest, entry, True
        for old in [e for e in self.entries.values() if e.step <= entry.step]:
            del self.entries[old.key]

    def _announce(self, entry: Entry) -> None:
        manifest, wanted = entry.manifest, self.spec.checkpoint.replicas
        assert manifest is not None
        self._know(entry)
        text, replicas = f"step {manifest.step} is consistent", entry.final()
        if replicas < wanted and entry.failed:
            why = "; ".join(f"{node}: {reason}" for node, reason in sorted(entry.failed.items()))
            text += f", with {replicas} of {wanted} replicas ({why})"
        self.ctx.emit(
            "checkpoint_committed",
            text,
            self.job,
            manifest.generation.counter,
            step=manifest.step,
            bytes=manifest.bytes,
            replicas=replicas,
            stall_seconds=entry.stall_seconds,
            write_seconds=entry.write_seconds,
            snapshot=entry.mode or None,
        )
        for node in self.view.members:
            self.ctx.send(node, Consistent(self.job, manifest.lineage, manifest.step))
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
        odd = entry.odd(index, node)
        others = sorted(n for n in entry.tensors.get(index, {}) if n != node)
        other = others[0] if others else None
        tensor = entry.first_difference(index, node, other)
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
            evidence=[
                f"{n} has a model of check {d[:16]}" for n, d in sorted(entry.models.items())
            ],
            seconds_to_detect=0.0,
            tensor=tensor,
            shard=index,
        )
