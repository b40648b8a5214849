"""What a leader asks of nodes so that a checkpoint gets its replicas, and of whom it gives up."""

from __future__ import annotations

from dataclasses import dataclass, replace

from elasticd.core.context import Context
from elasticd.core.saving import telling
from elasticd.core.saving.checkpoint import Checkpoint
from elasticd.core.saving.descent import Descent
from elasticd.core.saving.replicas import Replicas
from elasticd.core.saving.shelf import Shelf
from elasticd.core.words.shards import ManifestStore, ManifestStored, PullShards
from elasticd.settings.job import JobSpec
from elasticd.types import JobId, NodeId

_BYTES_A_SECOND = 10e6
"""No copy is waited for that is slower."""


@dataclass(slots=True)
class Errands:
    """Of one job. Where a node's disk refuses, or takes nothing for too long, others have its
    part."""

    ctx: Context
    job: JobId
    spec: JobSpec
    descent: Descent
    shelf: Shelf
    replicas: Replicas
    retry_at: float = 0.0
    """Before that nobody is asked to copy: it has failed just now."""

    # --- what is asked ----------------------------------------------------------------------------

    def further(self, checkpoint: Checkpoint) -> bool:
        """Have what is missing copied; whether each shard is on enough nodes."""
        if self.replicas.held(checkpoint) < self.replicas.wanted(checkpoint):
            self._pull(checkpoint)
            return False
        self._store(checkpoint)
        return True

    def _pull(self, checkpoint: Checkpoint) -> None:
        """Let nodes copy shards that too few hold: those beside a world of one have nothing to do.

        Nothing while writers may still say what they have: it may be enough, or show that one of
        them has diverged.
        """
        if checkpoint.copying() or self.ctx.now < self.retry_at:
            return
        if self.replicas.writing(checkpoint):
            return
        key, copies = checkpoint.key, checkpoint.copies
        pull = PullShards(
            self.job, checkpoint.generation, key.lineage, key.step, key.stamp, key.count,
            checkpoint.said.digest, copies.table(), copies.listed(), self._is_last(checkpoint),
        )  # fmt: skip
        missing = self.replicas.wanted(checkpoint) - self.replicas.held(checkpoint)
        for node in self.replicas.able(checkpoint)[:missing]:
            checkpoint.pull(node, self.ctx.now)
            self.ctx.send(node, pull)

    def _store(self, checkpoint: Checkpoint) -> None:
        """Tell every node of the manifest that can have it, and has not been told."""
        replicas, manifest = self.replicas, checkpoint.manifest
        wanted, lasting = replicas.wanted(checkpoint), replicas.lasting(checkpoint)
        if manifest is None or not checkpoint.stands(wanted, lasting):
            parent = self.descent.parents.get(checkpoint.lineage)
            last = self._is_last(checkpoint)
            writers = self.descent.stayed.get(checkpoint.generation, frozenset())
            made = manifest or checkpoint.made(
                self.job, self.spec, parent, self.ctx.wall, last, writers
            )
            manifest = replace(made, holders=checkpoint.copies.listed())
            checkpoint.filing.write(manifest)
        places = replicas.places
        for node in (each for each in replicas.view.members if each in places):
            if checkpoint.can_store(node) and checkpoint.filing.ask(node, self.ctx.now):
                self.ctx.send(node, ManifestStore(self.job, manifest))

    def _is_last(self, checkpoint: Checkpoint) -> bool:
        """Whether the script has asked to stop there, as far as is known."""
        return checkpoint.said.last or self.descent.stops_at(checkpoint.step)

    # --- what comes of it -------------------------------------------------------------------------

    def not_copied(self, checkpoint: Checkpoint, node: NodeId) -> bool:
        """Whether ``node`` was to copy shards, which has failed."""
        copies = checkpoint.not_pulled(node)
        if copies:
            self.retry_at = self._later()
        return copies

    def not_stored(self, checkpoint: Checkpoint, node: NodeId, stored: ManifestStored) -> None:
        """``node`` has not taken the manifest."""
        self.ctx.log("warning", "manifest not stored", node=node, reason=stored.reason)
        if stored.lacks and checkpoint.lacks(node):
            self.retry_at = self._later()
        elif not stored.refused:
            checkpoint.reject(node)
        elif not checkpoint.copies.needs(node):
            self.do_without(checkpoint, node, stored.reason)
        elif checkpoint.filing.put_off(node, self._later()):
            telling.refused(self.ctx, self.job, checkpoint, node, stored.reason)

    def do_without(
        self, checkpoint: Checkpoint, node: NodeId, reason: str, keeps: bool = False
    ) -> None:
        """A node can't store its part, or more than what it ``keeps``: others do, or the checkpoint
        has fewer replicas."""
        told = node in checkpoint.failed
        if not keeps:
            checkpoint.forget(node)
        checkpoint.fail(node, reason)
        if not told:
            telling.refused(self.ctx, self.job, checkpoint, node, reason)

    def expire(self, checkpoint: Checkpoint) -> None:
        """Do without nodes that have said nothing for too long: their disks hang, maybe."""
        now, limit = self.ctx.now, self.ctx.timing.write_seconds
        late = self.replicas.writing(checkpoint) if now >= checkpoint.began + limit else []
        for node in late:
            self.do_without(checkpoint, node, f"it has not written its shards in {limit:g} s")
        copying = self._copy_seconds(checkpoint)
        for node, at in checkpoint.copying():
            if now >= at + copying:
                reason = f"it has not copied shards in {copying:.0f} s"
                self.do_without(checkpoint, node, reason, keeps=True)
        checkpoint.look_for_shards(now, self._back_seconds, limit)
        if self.replicas.durable(checkpoint):
            return
        for node, at in sorted(checkpoint.unanswered()):
            if now >= at + limit:
                self.do_without(checkpoint, node, f"it has not stored the manifest in {limit:g} s")

    def deadlines(self, checkpoint: Checkpoint) -> list[float]:
        """When to look at it again though nothing was heard."""
        limit, replicas = self.ctx.timing.write_seconds, self.replicas
        writing = replicas.writing(checkpoint)
        times = [checkpoint.began + limit] if writing else []
        copying = checkpoint.copying()
        times += [at + self._copy_seconds(checkpoint) for _, at in copying]
        if checkpoint.gone_at is not None and not checkpoint.lost:
            times += [checkpoint.gone_at + wait for wait in (self._back_seconds, limit)]
        if not replicas.durable(checkpoint):
            times += [at + limit for _, at in checkpoint.unanswered()]
            times += checkpoint.filing.again.values()
        short = replicas.held(checkpoint) < replicas.wanted(checkpoint) and checkpoint.complete
        if short and not (copying or writing) and replicas.able(checkpoint):
            times.append(self.retry_at)
        return times

    def _copy_seconds(self, checkpoint: Checkpoint) -> float:
        """So long at most a node may take to copy shards: large ones come over a slow link, too."""
        return self.ctx.timing.write_seconds + checkpoint.copies.bytes / _BYTES_A_SECOND

    @property
    def _back_seconds(self) -> float:
        """A daemon that is back says what it has once its children have spoken."""
        return self.ctx.timing.return_seconds + self.ctx.timing.holding_seconds

    def _later(self) -> float:
        return self.ctx.now + self.ctx.timing.retry_seconds
