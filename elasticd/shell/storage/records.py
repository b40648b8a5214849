"""What the control plane remembers across restarts: journal records, and marks of steps."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import structlog

from elasticd.core.recall import KINDS, Recall, Record
from elasticd.core.words.codec import from_plain, to_plain
from elasticd.core.words.effects import Reached
from elasticd.core.words.stable import Stable
from elasticd.errors import DamageError, ProtocolError
from elasticd.shell.storage.journal import CUT_SUFFIX, Journal
from elasticd.shell.storage.marks import Marks

JOURNAL_NAME = "journal"

log = structlog.get_logger(__name__)


def read(item: Any) -> tuple[str, Record]:
    """A record of the journal, and its kind.

    Raises:
        KeyError, TypeError, ProtocolError: it is none that this version knows.
    """
    kind = item["kind"]
    return kind, from_plain(KINDS[kind], item["record"])


def plain(kind: str, record: Record) -> dict[str, Any]:
    """As the journal has it."""
    return {"kind": kind, "record": to_plain(record)}


def way_back(home: Path) -> str:
    """What cures a damaged journal, in one line."""
    return (
        f"The other nodes have the records: 'elasticctl reset --home {shlex.quote(str(home))}',"
        " then start the daemon again. 'elasticctl doctor' says more"
    )


class StableRecords:
    """The journal with the control plane's records in it, and a mark for each job."""

    def __init__(self, home: Path) -> None:
        """Open ``home``'s journal.

        Raises:
            DamageError: the disk lost something of it, or it holds what this version can't read.
        """
        path = home / JOURNAL_NAME
        try:
            self._journal, items = Journal.open(path)
        except DamageError as error:
            raise DamageError(f"{error}. {way_back(home)}") from error
        if self._journal.cut_bytes:
            log.warning(
                "the last write before this start was not complete; nobody was told of it",
                bytes=self._journal.cut_bytes,
                kept=f"{path}{CUT_SUFFIX}",
            )
        self._recall = Recall()
        self._marks = Marks(home / "reached")
        items.reverse()
        while items:  # of thousands each goes as soon as it is read
            item = items.pop()
            try:
                kind, record = read(item)
            except (KeyError, TypeError, ProtocolError) as error:
                raise DamageError(
                    f"{path}: unreadable record: {error}; another version may have written it."
                    f" {way_back(home)}"
                ) from error
            self._recall.absorb(kind, record)

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
        self._journal.append([plain(kind, record) for kind, record in records])
        if self._journal.wants_compaction:
            self._journal.compact([plain(kind, kept) for kind, kept in self._recall.latest])

    def mark(self, reached: Reached) -> None:
        """As :meth:`Marks.write`."""
        self._marks.write(reached)

    def close(self) -> None:
        self._journal.close()
