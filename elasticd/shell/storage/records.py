"""What the control plane remembers across restarts: journal records, and marks of steps."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import structlog

from elasticd.core.recall import KINDS, Recall, Record
from elasticd.core.words.codec import from_plain, to_plain
from elasticd.core.words.effects import Reached
from elasticd.core.words.stable import Stable
from elasticd.errors import DamageError, ProtocolError
from elasticd.pasting import of_home, quoted
from elasticd.shell.inorder import EventDisk
from elasticd.shell.storage.alike import alike, same_reasons
from elasticd.shell.storage.journal import CUT_SUFFIX, Journal
from elasticd.shell.storage.marks import Marks

JOURNAL_NAME = "journal"
ONLY_NODE = "If there is no other node, add --keep-jobs: what is readable of the jobs stays"
UNREADABLE = (AttributeError, KeyError, TypeError, ProtocolError)
"""What :func:`read` raises."""

log = structlog.get_logger(__name__)


def read(item: Any) -> tuple[str, Record]:
    """A record of the journal, and its kind.

    Raises:
        AttributeError, KeyError, TypeError, ProtocolError: it is none that this version knows
            (:data:`UNREADABLE`).
    """
    kind, record = item["kind"], item["record"]
    if kind == "job":
        spec = record["spec"]
        tables = {name: alike(table) for name, table in spec.items()}
        record = {**same_reasons(record), "spec": tables}
    return kind, from_plain(KINDS[kind], record)


def _read_or_why(item: Any) -> tuple[str, Record] | Exception:
    try:
        return read(item)
    except UNREADABLE as error:
        return error


def plain(kind: str, record: Record) -> dict[str, Any]:
    """As the journal has it."""
    return {"kind": kind, "record": to_plain(record)}


def way_back(home: Path) -> str:
    """What cures a damaged journal, in one line."""
    return (
        f"The other nodes have the records: {quoted(of_home('reset', home))},"
        f" then start the daemon again. {ONLY_NODE}. 'elasticctl doctor' says more"
    )


@contextmanager
def _uncollected() -> Iterator[None]:
    """What is read meanwhile is looked at by no search for garbage, now or later: there are no
    rings in it, and years of it are much to look at."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.freeze()


class StableRecords:
    """The journal with the control plane's records in it, and a mark for each job."""

    def __init__(self, home: Path, disk: EventDisk | None = None) -> None:
        """Open ``home``'s journal. ``disk`` writes the marks, beside the loop.

        Raises:
            DamageError: the disk lost something of it, or it holds what this version can't read.
        """
        path = home / JOURNAL_NAME
        try:
            with _uncollected():
                self._journal, found = Journal.open(path, _read_or_why)
        except DamageError as error:
            raise DamageError(f"{error}. {way_back(home)}") from error
        if self._journal.cut_bytes:
            log.warning(
                "the last write before this start was not complete; nobody was told of it",
                bytes=self._journal.cut_bytes,
                kept=f"{path}{CUT_SUFFIX}",
            )
        self._recall = Recall()
        self._marks = Marks(home / "reached", disk)
        for each in found:
            if isinstance(each, Exception):
                raise DamageError(
                    f"{path}: unreadable record: {each}; another version may have written it."
                    f" {way_back(home)}"
                ) from each
            self._recall.absorb(*each)

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
        batch = [plain(kind, record) for kind, record in records]
        self._journal.append(batch)
        if self._journal.wants_compaction:
            self._journal.compact(plain(kind, kept) for kind, kept in self._recall.latest)

    def mark(self, reached: Reached) -> None:
        """As :meth:`Marks.write`."""
        self._marks.write(reached)

    def close(self) -> None:
        self._journal.close()
