"""Shards and states, as a node's shell stores, fetches and gives them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from elasticd.checkpoints.manifest import Manifest
from elasticd.core.words import effects as e
from elasticd.core.words.records import World
from elasticd.types import JobId, NodeId, Stamp

from .disk import LACKING, Key, drift_in, is_spoilt, seen_in
from .questions import Answer, StateWish
from .states import Brought
from .trainer import Trainer

if TYPE_CHECKING:
    from .host import Host

_FETCH_SECONDS = 60.0
_PATIENCE = 0.95
"""Of what a leader waits for: clocks differ."""
_DOUBT_SECONDS = (1.0, 3.0)
_TAKEN = "is not of the checkpoint that is here"


class Stores:
    """Of one node; what comes of an order is for the daemon that gave it."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self._free_at: dict[str, float] = {}
        """By run of the daemon, when its disk has all that was to be copied so far."""

    # --- checkpoints ------------------------------------------------------------------------------

    def commit(self, effect: e.CommitManifest) -> None:
        boot, manifest = self.host.boot, effect.manifest

        def committed() -> None:
            if self.host.boot != boot:
                return
            refused = self.host.disk.full
            reason = self.host.disk.commit(self.host.name, manifest)
            m, stored = manifest, self.host.disk.stored(manifest.job)
            name = (m.job, m.lineage, m.step, m.stamp, m.count)
            lacks = reason.endswith(LACKING)
            self.host.post(e.ManifestKept(*name, not reason, reason, stored, refused, lacks))

        self.host.cluster.after(self.host.chance("manifests").uniform(0.002, 0.03), committed)

    def prune(self, effect: e.PruneStore) -> None:
        boot, job = self.host.boot, effect.job

        def pruned() -> None:
            if self.host.boot == boot:
                keep = self.host.cluster.specs[job].checkpoint.keep
                self.host.disk.prune(job, effect.lineage, effect.step, keep)
                self.host.post(e.StoreChanged(job, self.host.disk.stored(job)))

        self.host.cluster.after(self.host.chance("prunes").uniform(0.001, 0.02), pruned)

    def fetch_shards(self, effect: e.FetchShards) -> None:
        boot = self.host.boot

        def fetched() -> None:
            if self.host.boot != boot:
                return
            full = not self.host.disk.takes_shards
            reason, rotten = self._copy_shards(
                effect.job, effect.step, effect.stamp, effect.count, effect.shards, effect.sources
            )
            stored, refused = self.host.disk.stored(effect.job), full or reason.endswith(_TAKEN)
            self.host.post(
                e.ShardsFetched(effect.report, not reason, reason, stored, refused, rotten)
            )

        seconds = self.host.chance("shards").uniform(0.01, 0.1) + self._disk_seconds()
        if seconds > _PATIENCE * self.host.cluster.setup.timing.write_seconds:
            self.host.disk.refused.add((effect.job, effect.step, effect.stamp))
        self.host.cluster.after(seconds, fetched)

    def _disk_seconds(self) -> float:
        """What a slow disk takes for a copy besides, and for those before it."""
        cluster, boot = self.host.cluster, self.host.boot
        slow = cluster.write_seconds_of(self.host.name)
        self._free_at[boot] = max(cluster.now, self._free_at.get(boot, 0.0)) + slow
        return self._free_at[boot] - cluster.now

    def _copy_shards(
        self,
        job: JobId,
        step: int,
        stamp: Stamp,
        count: int,
        shards: tuple[tuple[int, int, str], ...],
        sources: tuple[tuple[NodeId, ...], ...],
    ) -> tuple[str, tuple[tuple[int, NodeId], ...]]:
        """Why a shard could not be had, or nothing; and who gave one that was rotten."""
        key = (job, step, stamp)
        rotten: list[tuple[int, NodeId]] = []
        for index, size, digest in shards:
            if self.host.disk.file(key, count, index) == (size, digest):
                continue
            if not self.host.disk.takes_shards:
                self.host.disk.refused.add(key)
                return "no space left on device", ()
            if not self.host.disk.makes_room(self.host.name, key, count, index, digest):
                self.host.disk.refused.add(key)
                return f"shard {index} of step {step} {_TAKEN}", ()
            for node in sources[index]:
                host = self.host.cluster.hosts[node]
                if not self.host.cluster.network.fetches(self.host, host):
                    continue
                if host.disk.file(key, count, index) == (size, digest):
                    self.host.disk.keep(key, count, index, (size, digest))
                    break
                if host.disk.file(key, count, index) is not None:
                    rotten.append((index, node))
                    host.stores.doubt(key, count, index)
            else:
                self.doubt(key, count, index)
                return f"shard {index} of step {step} could not be had", tuple(rotten)
        return "", ()

    def doubt(self, key: Key, count: int, index: int) -> None:
        """As shell/storage/scrub.py: whoever got it otherwise than it should be says so, and what
        is rotten is held no more, once it was read here."""
        boot = self.host.boot

        def read() -> None:
            if self.host.boot == boot and self.host.disk.set_aside(key, count, index):
                self.host.post(e.StoreChanged(key[0], self.host.disk.stored(key[0])))

        self.host.cluster.after(self.host.chance("doubts").uniform(*_DOUBT_SECONDS), read)

    # --- states -----------------------------------------------------------------------------------

    def fetch_state(self, effect: e.FetchState) -> None:
        """For a world that a trainer is to enter."""
        boot, deadline, world = self.host.boot, self.host.now() + _FETCH_SECONDS, effect.world

        def attempt() -> None:
            if self.host.boot != boot or effect.trainer not in self.host.children:
                return
            if effect.wanted is None:
                came(self._restored(world))
            else:
                StateWish(self.host, world.job, effect.wanted, came).ask()

        def came(brought: Answer) -> None:
            trainer = self.host.children.get(effect.trainer)
            if self.host.boot != boot or not isinstance(trainer, Trainer):
                return
            if not isinstance(brought, str):
                trainer.load(world.generation, brought)
            elif effect.wanted is None or self.host.now() >= deadline:
                self.host.post(e.StateFailed(world.job, world.generation, brought))
            else:
                self.host.cluster.after(0.1, attempt)

        self.host.cluster.after(self.host.chance("states").uniform(0.01, 0.15), attempt)

    def prepare_state(self, effect: e.PrepareState) -> None:
        """For a trainer in no world."""
        boot = self.host.boot

        def attempt() -> None:
            if self.host.boot == boot and effect.trainer in self.host.children:
                StateWish(self.host, effect.job, effect.wanted, came).ask()

        def came(brought: Answer) -> None:
            trainer = self.host.children.get(effect.trainer)
            if self.host.boot != boot or not isinstance(trainer, Trainer):
                return
            if isinstance(brought, str):
                failed = e.PrepareFailed(effect.job, effect.generation, effect.serial, brought)
                self.host.post(failed)
            else:
                trainer.deliver(effect.serial, brought)

        self.host.cluster.after(self.host.chance("prepared").uniform(0.01, 0.4), attempt)

    def _lacking(self, found: Manifest, holders: tuple[tuple[NodeId, ...], ...]) -> str:
        """As Copies.borrow: why a shard could not be had from the others, or nothing."""
        key = (found.job, found.step, found.stamp)
        for shard, nodes in zip(found.shards, holders, strict=True):
            row = (shard.bytes, shard.digest)
            hosts = [self.host.cluster.hosts[node] for node in nodes if node != self.host.name]
            if not any(
                self.host.cluster.network.fetches(self.host, host)
                and host.disk.file(key, found.count, shard.index) == row
                for host in hosts
            ):
                return f"shard {shard.index} of step {found.step} could not be had"
        return ""

    def _restored(self, world: World) -> Answer:
        """From the world's checkpoint."""
        found = world.manifest
        assert found is not None
        rows = tuple((s.index, s.bytes, s.digest) for s in found.shards)
        if self.host.disk.takes(self.host.name, found):
            reason, _ = self._copy_shards(
                found.job, found.step, found.stamp, found.count, rows, world.holders
            )
        else:
            reason = self._lacking(found, world.holders)
        first, *others = seen_in(found)
        drift, *unlike = drift_in(found)
        if others or unlike:
            self.host.cluster.checkers.broken(f"{found.point} is put together from several states")
        spoilt = is_spoilt(found)
        return reason or Brought(found.point, spoilt=spoilt, drift=drift, seen=first)
