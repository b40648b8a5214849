"""What a node's journal says after all: which of its records still count."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, assert_never

from elasticd.core.words.records import Heard, JobRecord, Lost, NodeRecord, View, World
from elasticd.core.words.stable import Stable
from elasticd.recovery.quorum import MAX_SINCE
from elasticd.types import NO_TAG, JobId, Tag

Record = View | JobRecord | World | Heard | NodeRecord | Lost
KINDS: dict[str, type] = {
    "view_attempt": View,
    "view_formed": View,
    "primary_attempt": View,
    "primary_formed": View,
    "job": JobRecord,
    "world": World,
    "heard": Heard,
    "node": NodeRecord,
    "lost": Lost,
}
"""The kinds of records in the journal, and what each holds."""


class Recall:
    """Takes in a journal's records, oldest first."""

    def __init__(self) -> None:
        self._latest: dict[tuple[str, str], Any] = {}
        self._jobs: dict[JobId, JobRecord] = {}
        self._counter = 0
        self._promised: Tag | None = None
        self._born: Tag | None = None
        self._heard: dict[JobId, Tag] = {}
        self._since: dict[Tag, None] = {}
        self._ended = Heard(JobId(""), NO_TAG)
        """The newest world of all jobs that have ended."""

    @property
    def stable(self) -> Stable:
        """What a node starts with."""
        return Stable(
            counter=self._counter,
            promised=self._promised,
            records=tuple(self._jobs[job] for job in sorted(self._jobs)),
            born=self._born,
            formed=self._latest.get(("primary_formed", "")),
            attempts=tuple(self._of_kind("primary_attempt")),
            worlds=tuple(self._of_kind("world")),
            nodes=tuple(self._of_kind("node")),
            lost=("lost", "") in self._latest,
            since=tuple(self._since)[-MAX_SINCE:] if ("lost", "") in self._latest else (),
            heard=tuple(Heard(job, self._heard[job]) for job in sorted(self._heard)),
        )

    @property
    def latest(self) -> list[tuple[str, Any]]:
        """The records that still count: as good as all that were taken in."""
        return [(kind, record) for (kind, _), record in self._latest.items()]

    def absorb(self, kind: str, record: Record) -> None:
        key = ""
        match record:
            case View():
                self._counter = max(self._counter, record.epoch.counter)
                for each in record.heard:
                    self._hear(each.job, each.generation)
                key = self._view(kind, record)
            case World(generation=generation, job=key):
                self._hear(key, generation)
            case Heard(job=key, generation=generation):
                self._hear(key, generation)
            case NodeRecord(node=key):
                pass
            case Lost():
                self._since.clear()
            case JobRecord(id=key):
                known = self._jobs.get(record.id)
                record = record if known is None else known.merged(record)
                self._jobs[record.id] = record
                if record.ended:
                    self._forget_worlds(record.id)
            case _:
                assert_never(record)
        self._latest.pop((kind, key), None)
        self._latest[kind, key] = record
        if isinstance(record, World | Heard):
            known = self._jobs.get(record.job)
            if known is not None and known.ended:
                self._forget_worlds(record.job)

    def _forget_worlds(self, job: JobId) -> None:
        """Of a job that has ended no world counts, but that no number is given twice."""
        for kind in ("world", "heard"):
            self._latest.pop((kind, job), None)
        generation = self._heard.pop(job, None)
        if generation is not None and generation.counter >= self._ended.generation.counter:
            self._ended = Heard(job, generation)
            self._latest["heard", ""] = self._ended

    def _hear(self, job: JobId, generation: Tag) -> None:
        self._counter = max(self._counter, generation.counter)
        self._heard[job] = max(self._heard.get(job, NO_TAG), generation)

    def _view(self, kind: str, view: View) -> str:
        """What the view is kept under: of attempts all count until a later view is formed."""
        if kind.endswith("_attempt") and ("lost", "") in self._latest:
            self._since[view.epoch] = None
        if kind == "view_attempt":
            self._promised = view.epoch
            if self._born is None:
                self._born = view.epoch
                self._latest[kind, "first"] = view
        if kind == "primary_formed":
            self._latest.pop(("lost", ""), None)  # those who remember have let it in
            for other in self._of_kind("primary_attempt"):
                if other.epoch <= view.epoch:
                    del self._latest["primary_attempt", str(other.epoch)]
        return str(view.epoch) if kind == "primary_attempt" else ""

    def _of_kind(self, wanted: str) -> list[Any]:
        return [record for (kind, _), record in self._latest.items() if kind == wanted]


def without_promises(
    records: Iterable[tuple[str, Record]], reason: str
) -> list[tuple[str, Record]]:
    """What a node may begin with that has lost its journal, or a part of it.

    ``records`` are what is left of it, oldest first. Jobs and nodes merge with what the others
    tell. Views and worlds are dropped: who knows only some of what it promised takes what it
    promised later for something that never was.
    """
    recall = Recall()
    for kind, record in records:
        recall.absorb(kind, record)
    stable = recall.stable
    return [
        ("lost", Lost(reason)),
        *(("heard", heard) for heard in stable.heard),
        *(("node", node) for node in stable.nodes),
        *(("job", job) for job in stable.records),
    ]
