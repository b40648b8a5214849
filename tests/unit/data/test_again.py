"""What a stream makes ahead of need is made again: what it reads must not change meanwhile."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elasticd.data import JsonLines, SampleStream
from elasticd.errors import UsageError

ROWS = 200
AHEAD = 5


class Level:
    now = 1

    def of(self, row: Any) -> Any:
        return np.full(3, row["n"] * self.now)


@pytest.fixture
def rows(tmp_path: Path) -> SampleStream:
    lines = [json.dumps({"n": n}) for n in range(1, ROWS + 1)]
    (tmp_path / "rows.jsonl").write_text("\n".join(lines))
    return JsonLines(tmp_path / "rows.jsonl").stream()


EARLY: dict[str, Callable[[SampleStream], SampleStream]] = {
    "right above prefetch": lambda stream: stream.prefetch(AHEAD),
    "further above prefetch": lambda stream: stream.shuffle(8).map(lambda x: x).prefetch(AHEAD),
    "in windows above prefetch": lambda stream: stream.windows(2).prefetch(AHEAD),
    "above shuffle": lambda stream: stream.shuffle(AHEAD),
    "further above shuffle": lambda stream: stream.windows(2).shuffle(AHEAD).map(lambda x: x),
    "above windows": lambda stream: stream.windows(2),
}


@pytest.mark.parametrize("name", EARLY)
def test_what_reads_a_level_that_changes_is_told(rows: SampleStream, name: str) -> None:
    level, reader = Level(), name.rpartition(" ")[2]
    cursor = EARLY[name](rows.map(level.of))()
    with pytest.raises(UsageError, match=rf"rows.jsonl:\d+ now .*that map\(\) behind {reader}\(\)"):
        for number, _ in enumerate(cursor):
            level.now = 1 + number // 20


def test_a_map_behind_them_may_read_it(rows: SampleStream) -> None:
    level = Level()
    cursor = rows.shuffle(1).prefetch(AHEAD).map(level.of)()
    next(cursor)
    level.now = 2
    assert [sample[0] for sample in cursor] == [2 * n for n in range(2, ROWS + 1)]


def test_a_function_may_change_its_row(rows: SampleStream) -> None:
    popped = rows.map(lambda row: row.pop("n")).prefetch(AHEAD)
    assert list(popped()) == list(range(1, ROWS + 1))


def test_some_are_made_twice_and_the_others_once(rows: SampleStream) -> None:
    asked: list[int] = []

    def noted(row: Any) -> Any:
        asked.append(row["n"])
        return row["n"]

    assert len(list(rows.map(noted).prefetch(AHEAD)())) == ROWS
    assert 0 < len(asked) - ROWS < ROWS / 10 and {*asked} == {*range(1, ROWS + 1)}


def test_what_can_t_be_copied_is_made_once(rows: SampleStream) -> None:
    generators = rows.map(lambda row: (n for n in [row["n"]])).map(next).prefetch(AHEAD)
    assert list(generators()) == list(range(1, ROWS + 1))
