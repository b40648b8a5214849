"""A node's disk: what was synced survives a power cut, what was only written is lost or torn."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from elasticd.checkpoints.manifest import Manifest, Stored, ousts
from elasticd.checkpoints.retention import KeepLast, overtaken
from elasticd.core.recall import Recall, without_promises
from elasticd.core.words.codec import to_plain
from elasticd.core.words.effects import Persist, Reached
from elasticd.core.words.records import JobRecord, View, World
from elasticd.core.words.stable import Stable
from elasticd.shell.storage.journal import frame, scan
from elasticd.types import JobId, Lineage, NodeId, Point, Stamp, Tag

Key = tuple[JobId, int, Stamp]
Files = dict[tuple[int, int], tuple[int, str]]
"""Bytes and digest of shards by (count, index)."""
_TORN = (50, "torn")
SPOILT = "c"
"""How digests of what a trainer has computed wrongly begin."""
_SEEN_AT, _SEEN_LETTERS = 16, 16
_DRIFT_AT, _DRIFT_LETTERS = 32, 8
"""Where digests say what calls have returned."""
_ROTTEN = "rotten"
"""Only a reader of the whole file finds that out."""
LACKING = "is missing, or is another state's"
"""How the reason ends for which a node that is to hold a shard does not take a manifest."""


class DiskFull(OSError):
    """No space is left."""


@dataclass(frozen=True, slots=True)
class OwnShards:
    """What one trainer writes of a state. The files' bytes name the lineage, as real ones do, and
    are other ones where the script's calls of run.on_main have returned something else."""

    job: JobId
    point: Point
    count: int
    indices: list[int]
    spoilt: bool
    variant: int
    seen: str
    drift: str

    @property
    def key(self) -> Key:
        return self.job, self.point.step, self.point.stamp

    def files(self) -> Files:
        return {(self.count, index): (100, self._digest(index)) for index in self.indices}

    def _digest(self, index: int) -> str:
        lineage = sum(
            ord(letter) * (position + 1) for position, letter in enumerate(self.point.lineage)
        )
        mark, named = SPOILT if self.spoilt else "0", f"{lineage:014x}{self.seen:0>16}"
        state = f"{self.drift:0>8}{self.point.step:08x}"
        return f"{mark}{self.variant:x}{named}{state}{self.count:08x}{index:08x}"


@dataclass(slots=True)
class Disk:
    """The journal and the checkpoints of one node."""

    journal: list[tuple[str, Any]] = field(default_factory=list)
    promised: set[Tag] = field(default_factory=set)
    """Epochs of views that the journal has as attempted."""
    attempted: set[Tag] = field(default_factory=set)
    """Of those that may train."""
    followed: set[Tag] = field(default_factory=set)
    """Of those that the journal has as formed."""
    newest_promise: Tag | None = None
    entered: set[Tag] = field(default_factory=set)
    """Generations of worlds that the journal has."""
    jobs: set[JobId] = field(default_factory=set)
    """Jobs that the journal has."""
    files: set[JobId] = field(default_factory=set)
    """Jobs that have logs, outputs and the like here."""
    finals: dict[Key, Manifest] = field(default_factory=dict)
    shards: dict[Key, Files] = field(default_factory=dict)
    """Durable ones."""
    unsynced: dict[Key, Files] = field(default_factory=dict)
    """Being written, under names that mean nothing yet; a power cut takes them."""
    committed: list[tuple[Manifest, tuple[int, ...]]] = field(default_factory=list)
    """Every manifest that was ever stored here, with the shards that were durable here then."""
    rotten: list[tuple[Key, tuple[int, int], tuple[int, str]]] = field(default_factory=list)
    """Shards that have lost their content behind everybody's back, with what it was."""
    refused: set[Key] = field(default_factory=set)
    """Checkpoints that there was no room for, once, that it has in other files, or that it copies
    for longer than anybody waits."""
    changes: dict[Key, int] = field(default_factory=dict)
    """Of each checkpoint, finished or not: which change of the disk was its last one."""
    change: int = 0
    full: bool = False
    cramped: bool = False
    """It has room for the journal and manifests, not for shards."""
    sync_seconds: float = 0.0
    """What a sync of the journal takes, besides what always is: a slow disk."""
    hangs: bool = False
    """A sync of the journal does not end."""
    lies: bool = False
    """Says that it has synced shards and has not; for a planted bug."""
    _worlds: dict[JobId, World] = field(default_factory=dict)
    reached: dict[JobId, Reached] = field(default_factory=dict)
    """Written at each step and never synced."""

    # --- the journal ------------------------------------------------------------------------------

    def append(self, kind: str, record: Any) -> None:
        """Add a record; it is durable then.

        Raises:
            DiskFull: nothing was written.
        """
        if self.full:
            raise DiskFull("no space left on device")
        self._append(kind, record)

    def _append(self, kind: str, record: Any) -> None:
        self.journal.append((kind, record))
        match record:
            case View(epoch=epoch) if kind == "view_attempt":
                self.promised.add(epoch)
                self.newest_promise = epoch
            case View(epoch=epoch) if kind == "primary_attempt":
                self.attempted.add(epoch)
            case View(epoch=epoch) if kind in ("view_formed", "primary_formed"):
                self.followed.add(epoch)
            case JobRecord(id=job):
                self.jobs.add(job)
            case World(job=job, generation=generation):
                self._worlds[job] = record
                self.entered.add(generation)

    def newest_world(self, job: JobId) -> World | None:
        """The last world of a job that the journal has."""
        return self._worlds.get(job)

    def tear(self, records: Sequence[Persist], chance: random.Random) -> None:
        """A daemon ends while a frame is written: it is there in part, as a whole or not at all,
        and nobody was told of it.

        What a restart makes of it is what the daemon's own reader makes of those bytes.
        """
        before = frame([[name, to_plain(kept)] for name, kept in self.journal[-1:]])
        torn = frame([[each.kind, to_plain(each.record)] for each in records])
        # A fraction, so that it doesn't matter how a record is encoded; often enough all of it.
        cut = min(len(torn), int(chance.uniform(0.0, 1.1) * len(torn)))
        found = scan(before + torn[:cut])
        if found.rotten_at is not None:
            raise AssertionError(f"a torn frame reads as rot: {cut} of {len(torn)} bytes")
        if len(found.records) > len(self.journal[-1:]):
            for each in records:
                self._append(each.kind, each.record)

    def lose_journal(self, left: int) -> None:
        """Only the first ``left`` records are readable; an operator resets the node."""
        kept = without_promises(self.journal[:left], "damaged")
        # What was promised was promised: the others go by that until they see that it is gone.
        self.journal, self.newest_promise = [], None
        self.jobs.clear()
        self._worlds.clear()
        self.reached.clear()
        for kind, record in kept:
            self._append(kind, record)

    def stable(self) -> Stable:
        """What a daemon that starts reads."""
        recall = Recall()
        for kind, record in self.journal:
            recall.absorb(kind, record)
        return replace(recall.stable, reached=tuple(self.reached.values()))

    @property
    def takes_shards(self) -> bool:
        return not (self.full or self.cramped)

    # --- shards -----------------------------------------------------------------------------------

    def write(self, own: OwnShards) -> None:
        """A trainer's shards, not synced yet.

        Raises:
            DiskFull: nothing of them is there.
        """
        if not self.takes_shards:
            self.refused.add(own.key)
            raise DiskFull("no space left on device")
        self._changed(own.key)
        self.unsynced.setdefault(own.key, {}).update(own.files())

    def sync(self, own: OwnShards) -> list[tuple[int, int, str]]:
        """Make them durable; (index, bytes, digest) of each."""
        unsynced = self.unsynced.get(own.key, {})
        final = self.shards.get(own.key, {}) if own.key in self.finals else {}
        for name, row in own.files().items():
            if not self.lies:
                unsynced.pop(name, None)
                if name not in final:  # nothing final is written over
                    self.keep(own.key, *name, row)
        return [(index, *row) for (_, index), row in own.files().items()]

    def makes_room(self, node: NodeId, key: Key, count: int, index: int, digest: str) -> bool:
        """False for a shard of another state than the final one of that name: nothing final is
        written over. One that only says that others have it is gone then."""
        final = self.finals.get(key)
        if final is None or (final.count == count and final.shards[index].digest == digest):
            return True
        return self._give_way(node, final)

    def takes(self, node: NodeId, wanted: Manifest) -> bool:
        """As LocalStore.takes."""
        final = self.finals.get((wanted.job, wanted.step, wanted.stamp))
        return final is None or final.shards == wanted.shards or self._only_names(node, final)

    def _only_names(self, node: NodeId, final: Manifest) -> bool:
        return not final.held_by(node) and not self.held(final)

    def _give_way(self, node: NodeId, final: Manifest, new: Manifest | None = None) -> bool:
        if not self._only_names(node, final) and (new is None or not ousts(new, final)):
            return False
        del self.finals[final.job, final.step, final.stamp]
        return True

    def keep(self, key: Key, count: int, index: int, row: tuple[int, str]) -> None:
        """A shard that is durable at once: one that was copied from a peer."""
        if key not in self.finals:
            self._changed(key)
        self.shards.setdefault(key, {})[count, index] = row

    def file(self, key: Key, count: int, index: int) -> tuple[int, str] | None:
        """What a reader finds."""
        cached = self.unsynced.get(key, {}).get((count, index)) if self.lies else None
        return cached or self.shards.get(key, {}).get((count, index))

    def power_cut(self, chance: random.Random) -> None:
        """What was not synced is gone, or half there."""
        for key, files in self.unsynced.items():
            for name in files:
                if chance.random() < 0.5 and name not in self.shards.get(key, {}):
                    self.shards.setdefault(key, {})[name] = _TORN
        self.unsynced.clear()
        self.reached.clear()

    def rot(self, chance: random.Random, others: list[Disk]) -> bool:
        """A durable shard changes its content; False if each is the last sound one of its kind."""
        names = [
            (key, name)
            for key, files in sorted(self.shards.items())
            for name, row in files.items()
            if any(other.shards.get(key, {}).get(name) == row for other in others)
        ]
        if not names:
            return False
        self.rots(*chance.choice(names))
        return True

    def rots(self, key: Key, name: tuple[int, int]) -> None:
        """The content of a shard that is here changes."""
        self.rotten.append((key, name, self.shards[key][name]))
        self.shards[key][name] = (100, _ROTTEN)

    def has(self, key: Key, manifest: Manifest, index: int) -> bool:
        """Whether a shard of a final checkpoint is here, durable and sound."""
        shard, files = manifest.shards[index], self.shards.get(key, {})
        is_right = files.get((manifest.count, index)) == (shard.bytes, shard.digest)
        return self.finals.get(key) == manifest and is_right

    def set_aside(self, key: Key, count: int, index: int) -> bool:
        """A final shard that was read, and is damaged, is held no more."""
        found = self.shards.get(key, {}).get((count, index))
        if key not in self.finals or found is None or found[1] != _ROTTEN:
            return False
        del self.shards[key][count, index]
        return True

    # --- manifests --------------------------------------------------------------------------------

    def commit(self, node: NodeId, manifest: Manifest) -> str:
        """Why the manifest can't be stored, or nothing."""
        key = (manifest.job, manifest.step, manifest.stamp)
        old = self.finals.get(key)
        if self.full:
            self.refused.add(key)
            return "no space left on device"
        if (
            old is not None
            and not old.same_state(manifest)
            and not self._give_way(node, old, manifest)
        ):
            return "another state is committed there"
        for index in manifest.held_by(node):
            if not self._seems_whole(key, manifest, index):
                return f"shard {index} {LACKING}"
        self.finals[key] = manifest
        self._changed(key)
        files = self.shards.get(key, {})
        self.shards[key] = {k: v for k, v in files.items() if k[0] == manifest.count}
        self.committed.append((manifest, self.was_durable(manifest)))
        return ""

    def prune(self, job: JobId, lineage: Lineage, step: int, keep: int) -> None:
        """As shell/storage/states.py: up to a checkpoint that is consistent."""
        known = [m for m in self.finals.values() if m.job == job]
        for gone in overtaken(known, [KeepLast(keep)], step, lineage):
            self._remove((gone.job, gone.step, gone.stamp))

    def _remove(self, key: Key) -> None:
        del self.finals[key]
        self.shards.pop(key, None)
        self.unsynced.pop(key, None)

    def held(self, manifest: Manifest) -> tuple[int, ...]:
        """The shards of a checkpoint that are here, by their names and sizes."""
        key = (manifest.job, manifest.step, manifest.stamp)
        return tuple(i for i in range(manifest.count) if self._seems_whole(key, manifest, i))

    def _seems_whole(self, key: Key, manifest: Manifest, index: int) -> bool:
        shard = manifest.shards[index]
        expected = ((shard.bytes, shard.digest), (shard.bytes, _ROTTEN))
        return self.file(key, manifest.count, index) in expected

    def was_durable(self, manifest: Manifest) -> tuple[int, ...]:
        """The shards that are durable here, or were until they rotted."""
        key = (manifest.job, manifest.step, manifest.stamp)
        lost = {(name, row) for where, name, row in self.rotten if where == key}
        return tuple(
            s.index
            for s in manifest.shards
            if ((manifest.count, s.index), (s.bytes, s.digest)) in lost
            or self.shards.get(key, {}).get((manifest.count, s.index)) == (s.bytes, s.digest)
        )

    def stored(self, job: JobId) -> tuple[Stored, ...]:
        found = sorted(
            (m for m in self.finals.values() if m.job == job), key=lambda m: (m.step, m.stamp)
        )
        return tuple(Stored(manifest, self.held(manifest)) for manifest in found)

    def sweep(self, written: Collection[JobId] = ()) -> None:
        """As LocalStore.sweep: temporary names go, and unfinished checkpoints that a final one has
        overtaken since; none of the jobs in ``written``."""
        for key in [key for key in self.unsynced if key[0] not in written]:
            del self.unsynced[key]
        for key in [key for key in self.shards if key not in self.finals and self._is_over(key)]:
            if key[0] not in written:
                del self.shards[key]

    def _is_over(self, key: Key) -> bool:
        changed = self.changes.get(key, 0)
        return any(
            job == key[0] and step >= key[1] and self.changes[job, step, stamp] > changed
            for job, step, stamp in self.finals
        )

    def _changed(self, key: Key) -> None:
        self.change += 1
        self.changes[key] = self.change


def seen_in(manifest: Manifest) -> set[str]:
    """What calls of run.on_main have returned that led to it, as its shards say."""
    found = {shard.digest[_SEEN_AT:][:_SEEN_LETTERS] for shard in manifest.shards}
    return {"" if set(seen) == {"0"} else seen for seen in found}


def drift_in(manifest: Manifest) -> set[str]:
    """What chips have made of it, as its shards say."""
    found = {shard.digest[_DRIFT_AT:][:_DRIFT_LETTERS] for shard in manifest.shards}
    return {"" if set(drift) == {"0"} else drift for drift in found}


def is_spoilt(manifest: Manifest) -> bool:
    """Whether it is of what a spoilt trainer wrote."""
    return any(shard.digest[0] == SPOILT for shard in manifest.shards)
