"""What lies on the disk is found for each origin, in a thread beside the loop that changes it."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest

from elasticd.shell.storage import eventshelf
from elasticd.shell.storage.eventshelf import Segments, packed

MANY = 2000


def _counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How long each table was that has been unpacked since."""
    seen: list[int] = []
    unpacked = eventshelf.unpacked

    def noted(table: bytes) -> Any:
        seen.append(len(table))
        return unpacked(table)

    monkeypatch.setattr(eventshelf, "unpacked", noted)
    return seen


def test_a_table_of_many_origins_is_not_unpacked_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cluster's has all runs of all daemons: 10,000 took 45 s of who told a joiner."""
    cluster = {f"node/{number}": [(1, number + 1)] for number in range(MANY)}
    shelves = {"_cluster": packed(cluster), "job": packed({"node/7": [(9, 12)]})}
    segments, seen = Segments(shelves), _counted(monkeypatch)
    for origin in cluster:
        expected = [(1, cluster[origin][0][1], "_cluster")]
        assert segments.of(origin) == expected + [(9, 12, "job")] * (origin == "node/7")
    assert len(seen) <= 4
    shelves["_cluster"] = packed({**cluster, "node/7": [(1, 20)], "new": [(1, 1)]})
    segments.changed("_cluster")
    assert segments.of("node/7") == [(1, 20, "_cluster"), (9, 12, "job")]
    assert segments.of("new") == [(1, 1, "_cluster")] and len(seen) <= 7
    del shelves["_cluster"]
    segments.rest()
    assert segments.of("node/8") == [] and segments.of("node/7") == [(9, 12, "job")]


def test_so_much_is_unpacked_at_most_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = {f"job-{n}": packed({f"{n}/{each}": [(1, 1)] for each in range(500)}) for n in "abcd"}
    assert all(len(table) >= eventshelf._LARGE_BYTES // 2 for table in tables.values())
    monkeypatch.setattr(eventshelf, "_LARGE_BYTES", 1)
    monkeypatch.setattr(eventshelf, "_TABLES_BYTES", 2 * len(tables["job-a"]))
    segments = Segments(tables)
    assert segments.of("d/499") == [(1, 1, "job-d")] and segments.of("a/0") == [(1, 1, "job-a")]
    found = segments._found
    assert found is not None and sorted(found.tables) == ["job-a", "job-b"]
    segments.rest()
    assert segments._found is None, "all of it is given back"


def test_who_tells_goes_on_while_another_has_been_told_all() -> None:
    """Its task ended with an IndexError: what had changed was taken from under its hands."""
    shelves = {f"job-{number}": packed({"a": [(number, number)]}) for number in range(1, 6)}
    segments = Segments(shelves)

    class Changed(deque[str]):
        def popleft(self) -> str:
            segments.rest()  # as the loop may do while a thread is here
            return super().popleft()

    assert [each[0] for each in segments.of("a")] == [1, 2, 3, 4, 5]
    found = segments._found
    assert found is not None
    found.changed = Changed()
    for number in (1, 2, 9):
        shelves[f"job-{number}"] = packed({"a": [(number, number)]})
        segments.changed(f"job-{number}")
    assert [each[0] for each in segments.of("a")] == [1, 2, 3, 4, 5, 9]
    assert segments._found is None
