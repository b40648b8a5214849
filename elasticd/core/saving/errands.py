"""What a leader asks of nodes so that a checkpoint gets its replicas, and of whom it gives up."""

from __future__ import annotations

from dataclasses import dataclass, replace

from elasticd.core.context import Context
from elasticd.core.saving import telling
from elasticd.core.saving.course import Course
from elasticd.core.saving.entries import Entry
from elasticd.core.saving.replicas import Replicas
from elasticd.core.saving.shelf import Shelf
from elasticd.core.words.shards import ManifestStore, ManifestStored, PullShards
from elasticd.settings.job import JobSpec
from elasticd.types import JobId, NodeId


@dataclass(slots=True)
class Errands:
    """Of one job. Where a node's disk refuses, or takes nothing for too long, others have its
    part."""

    ctx: Context
    job: JobId
    spec: JobSpec
    course: Course
    shelf: Shelf
    replicas: Replicas
    retry_at: float = 0.0
    """Before that nobody is asked to copy: it has failed just now."""

    # --- what is asked ----------------------------------------------------------------------------

    def further(self, entry: Entry) -> bool:
        """Have what is missing copied; whether each shard is on enough nodes."""
        if self.replicas.held(entry) < self.replicas.wanted(entry):
            self._pull(entry)
            return False
        self._store(entry)
        return True

    def _pull(self, entry: Entry) -> None:
        """Let nodes copy shards that too few hold: those beside a world of one have nothing to do.

        Nothing while members of the world that makes the checkpoint may still be writing.
        """
        if entry.pulling or self.ctx.now < self.retry_at or self.replicas.may_suffice(entry):
            return
        key, copies = entry.key, entry.copies
        pull = PullShards(
            self.job, entry.generation, key.lineage, key.step, key.stamp, key.count,
            entry.said.digest, copies.table(), copies.listed(),
        )  # fmt: skip
        missing = self.replicas.wanted(entry) - self.replicas.held(entry)
        for node in self.replicas.able(entry)[:missing]:
            entry.pulling.add(node)
            self.ctx.send(node, pull)

    def _store(self, entry: Entry) -> None:
        """Tell every node of the manifest that can have it, and has not been told."""
        replicas, manifest = self.replicas, entry.manifest
        if manifest is None or not entry.stands(replicas.wanted(entry), replicas.lasting(entry)):
            made = manifest or entry.made(
                self.job, self.spec, self.course.parents.get(entry.lineage), self.ctx.wall
            )
            manifest = replace(made, holders=entry.copies.listed())
            entry.filing.write(manifest)
        for node in replicas.view.members:
            if entry.can_store(node) and entry.filing.ask(node, self.ctx.now):
                self.ctx.send(node, ManifestStore(self.job, manifest))

    # --- what comes of it -------------------------------------------------------------------------

    def not_copied(self, entry: Entry, node: NodeId) -> bool:
        """Whether ``node`` was to copy shards, which has failed."""
        copies = node in entry.pulling
        if copies:
            entry.pulling.discard(node)
            self.retry_at = self._later()
        return copies

    def not_stored(self, entry: Entry, node: NodeId, stored: ManifestStored) -> None:
        """``node`` has not taken the manifest."""
        self.ctx.log("warning", "manifest not stored", node=node, reason=stored.reason)
        if not stored.refused:
            entry.forget(node)
            entry.heard.add(node)
            entry.filing.rejected.add(node)
        elif not entry.copies.needs(node):
            self.do_without(entry, node, stored.reason)
        elif entry.filing.put_off(node, self._later()):
            telling.refused(self.ctx, self.job, entry, node, stored.reason)

    def do_without(self, entry: Entry, node: NodeId, reason: str, keeps: bool = False) -> None:
        """A node can't store its part, or more than what it ``keeps``: others do, or the checkpoint
        has fewer replicas."""
        told = node in entry.failed
        if not keeps:
            entry.forget(node)
        entry.heard.add(node)
        entry.failed[node] = reason
        if not told:
            telling.refused(self.ctx, self.job, entry, node, reason)

    def expire(self, entry: Entry) -> None:
        """Do without nodes that have said nothing for too long: their disks hang, maybe."""
        now, limit = self.ctx.now, self.ctx.timing.write_seconds
        late = self.replicas.writing(entry) if now >= entry.began + limit else []
        for node in late:
            self.do_without(entry, node, f"it has not written its shards in {limit:g} s")
        if self.replicas.durable(entry):
            return
        for node, at in sorted(entry.unanswered()):
            if now >= at + limit:
                self.do_without(entry, node, f"it has not stored the manifest in {limit:g} s")

    def deadlines(self, entry: Entry) -> list[float]:
        """When to look at it again though nothing was heard."""
        limit, replicas = self.ctx.timing.write_seconds, self.replicas
        times = [entry.began + limit] if replicas.writing(entry) else []
        if not replicas.durable(entry):
            times += [at + limit for _, at in entry.unanswered()]
            times += entry.filing.again.values()
        short = replicas.held(entry) < replicas.wanted(entry) and entry.complete
        if short and not entry.pulling and replicas.able(entry):
            times.append(self.retry_at)
        return times

    def _later(self) -> float:
        return self.ctx.now + self.ctx.timing.retry_seconds
