"""What the control plane remembers across restarts, as journal records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from elasticd.core.codec import from_plain, to_plain
from elasticd.core.messages import JobRecord, View, World
from elasticd.core.node import Stable
from elasticd.errors import ProtocolError, StateError
from elasticd.shell.journal import Journal
from elasticd.types import JobId, Tag

JOURNAL_NAME = "journal"
_KINDS: dict[str, type] = {
    "view_attempt": View,
    "view_formed": View,
    "job": JobRecord,
    "world": World,
}


class Memory:
    """The journal with the control plane's records in it."""

    def __init__(self, home: Path) -> None:
        """Open ``home``'s journal.

        Raises:
            StateError: it is damaged in the middle, or holds what this version can't read.
        """
        self._journal, plain = Journal.open(home / JOURNAL_NAME)
        self._latest: dict[tuple[str, str], Any] = {}
        self._records: dict[JobId, JobRecord] = {}
        self._counter = 0
        self._promised: Tag | None = None
        for item in plain:
            try:
                kind = item["kind"]
                self._absorb(kind, from_plain(_KINDS[kind], item["record"]))
            except (KeyError, TypeError, ProtocolError) as error:
                raise StateError(f"{home / JOURNAL_NAME}: unreadable record: {error}") from error

    @property
    def stable(self) -> Stable:
        records = tuple(self._records[job] for job in sorted(self._records))
        worlds = tuple(r for r in self._latest.values() if isinstance(r, World))
        return Stable(self._counter, self._promised, records, worlds)

    def persist(self, kind: str, record: Any) -> None:
        """Durable when it returns."""
        self._absorb(kind, record)
        self._journal.append([{"kind": kind, "record": to_plain(record)}])
        if self._journal.wants_compaction:
            self._journal.compact(
                [{"kind": k, "record": to_plain(r)} for (k, _), r in self._latest.items()]
            )

    def _absorb(self, kind: str, record: Any) -> None:
        key = ""
        match record:
            case View(epoch=epoch):
                self._counter = max(self._counter, epoch.counter)
                if kind == "view_attempt":
                    self._promised = epoch
            case World(generation=generation, job=key):
                self._counter = max(self._counter, generation.counter)
            case JobRecord(id=key):
                known = self._records.get(record.id)
                record = record if known is None else known.merged(record)
                self._records[record.id] = record
        self._latest.pop((kind, key), None)
        self._latest[(kind, key)] = record

    def close(self) -> None:
        self._journal.close()
