"""Digests of the records of ended jobs, so that two nodes with many need not tell each other all.

A record falls into one of :data:`GROUPS` groups by its id. A group's digest is the exclusive or of
its records' digests, so that a change costs the same however many there are.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from elasticd.core.words.codec import beyond
from elasticd.core.words.records import JobRecord
from elasticd.types import JobId

GROUPS = 256
MANY = 256
"""Fewer ended jobs than this are told whole: that is one message less."""
_DIGEST_BYTES = 6  # a whole number on the wire has 53 bits


@dataclass(slots=True)
class EndedJobs:
    """Which ended jobs there are, and their digests."""

    groups: list[dict[JobId, int]] = field(default_factory=lambda: [{} for _ in range(GROUPS)])
    fresh: dict[JobId, JobRecord] = field(default_factory=dict)
    """Records whose digest nobody has asked for yet."""
    count: int = 0

    def keep(self, record: JobRecord) -> None:
        """The record of a job that has ended, or a newer one of it."""
        group = self.groups[group_of(record.id)]
        self.count += record.id not in group
        group[record.id] = 0
        self.fresh[record.id] = record

    def digests(self) -> tuple[int, ...]:
        """Of every group."""
        for job, record in self.fresh.items():
            self.groups[group_of(job)][job] = digest(record)
        self.fresh.clear()
        found = []
        for group in self.groups:
            whole = 0
            for each in group.values():
                whole ^= each
            found.append(whole)
        return tuple(found)

    def one(self) -> JobId:
        """Of these jobs; there must be some."""
        return next(job for group in self.groups for job in group)

    def differing(self, digests: Sequence[int]) -> tuple[int, ...]:
        """The groups of which another node has other records."""
        pairs = zip(self.digests(), digests, strict=False)
        return tuple(group for group, (ours, theirs) in enumerate(pairs) if ours != theirs)

    def jobs(self, groups: Collection[int]) -> list[JobId]:
        """The jobs in these groups, by id."""
        known = [group for group in set(groups) if 0 <= group < GROUPS]
        return sorted(job for group in known for job in self.groups[group])


def group_of(job: JobId) -> int:
    return zlib.crc32(job.encode()) % GROUPS


def digest(record: JobRecord) -> int:
    """The same wherever the record is the same. Should the order in its maps differ it is told once
    more, no worse."""
    text = repr(record)
    # What was added is in it as builds have it that don't know it: they keep the record, too.
    further = [beyond(each) for each in (record, *record.unfit)]
    if any(further):
        text += repr(further)
    said = text.encode(errors="surrogatepass")
    return int.from_bytes(hashlib.blake2b(said, digest_size=_DIGEST_BYTES).digest())
