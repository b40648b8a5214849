"""What the control plane remembers across restarts: journal records, and marks of steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from elasticd.core.recall import KINDS, Recall
from elasticd.core.words.codec import from_plain, to_plain
from elasticd.core.words.effects import Reached
from elasticd.core.words.stable import Stable
from elasticd.errors import ProtocolError, StateError
from elasticd.shell.storage.journal import Journal
from elasticd.shell.storage.marks import Marks

JOURNAL_NAME = "journal"


class StableRecords:
    """The journal with the control plane's records in it, and a mark for each job."""

    def __init__(self, home: Path) -> None:
        """Open ``home``'s journal.

        Raises:
            StateError: it is damaged in the middle, or holds what this version can't read.
        """
        self._journal, plain = Journal.open(home / JOURNAL_NAME)
        self._recall = Recall()
        self._marks = Marks(home / "reached")
        plain.reverse()
        while plain:  # of thousands each goes as soon as it is read
            item = plain.pop()
            try:
                kind = item["kind"]
                self._recall.absorb(kind, from_plain(KINDS[kind], item["record"]))
            except (KeyError, TypeError, ProtocolError) as error:
                raise StateError(f"{home / JOURNAL_NAME}: unreadable record: {error}") from error

    def recover(self) -> Stable:
        """What is known of the time before this start; marks of jobs that ended then go."""
        stable = self._recall.stable
        running = {record.id for record in stable.records if not record.ended}
        return replace(stable, reached=self._marks.read(running))

    def persist(self, kind: str, record: Any) -> None:
        """Durable when it returns."""
        self.persist_all([(kind, record)])

    def persist_all(self, records: Sequence[tuple[str, Any]]) -> None:
        """All or none; durable when it returns."""
        for kind, record in records:
            self._recall.absorb(kind, record)
        self._journal.append([{"kind": k, "record": to_plain(record)} for k, record in records])
        if self._journal.wants_compaction:
            self._journal.compact(
                [{"kind": kind, "record": to_plain(kept)} for kind, kept in self._recall.latest]
            )

    def mark(self, reached: Reached) -> None:
        """As :meth:`Marks.write`."""
        self._marks.write(reached)

    def close(self) -> None:
        self._journal.close()
