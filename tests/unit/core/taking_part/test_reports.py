"""What a member tells a leader that comes later."""

from __future__ import annotations

from dataclasses import replace
from typing import NoReturn

from elasticd.core.context import Context
from elasticd.core.taking_part.reports import Reports
from elasticd.core.words.shards import ShardsFailed, ShardsWritten
from elasticd.types import JobId, Lineage, NodeId, Stamp, Tag

ODD = ShardsWritten(
    JobId("job-1"), Tag(2, NodeId("a"), "v"), Lineage("l"), 6, Stamp("s"), 3,
    ((0, 100, "f" * 64), (1, 100, "e" * 64)), "d" * 64, 0.0, 0.0,
)  # fmt: skip
COPIED = replace(ODD, shards=tuple((index, 100, "0" * 64) for index in range(3)))


def reports() -> Reports:
    return Reports(Context(NodeId("me"), lambda: "0000"), ODD.job, lambda epoch: _unasked())


def _unasked() -> NoReturn:
    raise AssertionError("nobody leads")


def test_of_files_that_were_written_twice_only_the_last_is_told() -> None:
    """A member that had diverged copied the others' shards over its own."""
    made = reports()
    made.wrote(ODD)
    made.wrote(COPIED)
    assert made.written == [COPIED]


def test_other_files_and_other_states_are_told_beside_it() -> None:
    one, other = (replace(COPIED, shards=COPIED.shards[i : i + 1]) for i in (0, 1))
    later, cut = replace(ODD, step=9), replace(ODD, count=2)
    made = reports()
    for written in (one, other, later, cut):
        made.wrote(written)
    assert made.written == [one, other, later, cut]


def test_what_was_not_written_is_kept_until_it_is() -> None:
    """A leader that comes later would wait for it."""
    made = reports()
    late, full = (
        ShardsFailed(
            ODD.job, ODD.generation, ODD.lineage, step, ODD.stamp, ODD.count, why, bool(why)
        )
        for step, why in ((3, ""), (ODD.step, "no room"))
    )
    for failed in (late, full, full):
        made.skips(failed)
    assert made.skipped == [late, full]
    made.wrote(ODD)
    assert made.skipped == [late]
