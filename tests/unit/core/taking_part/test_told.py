"""What a member tells of shards to a leader that comes later."""

from __future__ import annotations

from dataclasses import replace

from elasticd.checkpoints.manifest import Stored
from elasticd.core.taking_part.told import ToldShards
from elasticd.core.words.shards import ShardsFailed, ShardsWritten
from elasticd.types import JobId, Lineage, NodeId, Stamp, Tag
from tests.unit.core.saving.desk import LINE, A, B, Desk

ODD = ShardsWritten(
    JobId("job-1"), Tag(2, NodeId("a"), "v"), Lineage("l"), 6, Stamp("s"), 3,
    ((0, 100, "f" * 64), (1, 100, "e" * 64)), "d" * 64, 0.0, 0.0,
)  # fmt: skip
FULL = ShardsFailed(ODD.job, ODD.generation, ODD.lineage, 9, ODD.stamp, ODD.count, "no room", True)
COPIED = replace(ODD, shards=tuple((index, 100, "0" * 64) for index in range(3)))


def test_of_files_that_were_written_twice_only_the_last_is_told() -> None:
    """A member that had diverged copied the others' shards over its own."""
    made = ToldShards()
    made.wrote(ODD)
    made.wrote(COPIED)
    assert made.written == [COPIED]


def test_other_files_and_other_states_are_told_beside_it() -> None:
    one, other = (replace(COPIED, shards=COPIED.shards[i : i + 1]) for i in (0, 1))
    later, cut = replace(ODD, step=9), replace(ODD, count=2)
    made = ToldShards()
    for written in (one, other, later, cut):
        made.wrote(written)
    assert made.written == [one, other, later, cut]


def test_what_was_not_written_is_kept_until_it_is() -> None:
    """A leader that comes later would wait for it."""
    made = ToldShards()
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


def test_a_newer_world_has_skipped_nothing_yet() -> None:
    made = ToldShards()
    made.wrote(ODD)
    made.skips(FULL)
    assert made.again() == [FULL, ODD]
    made.enter_world()
    assert made.again() == [ODD]


def test_what_is_final_on_the_disk_is_not_told_again() -> None:
    desk = Desk()
    for node in (A, B):
        desk.wrote(node, 0, 1)
    final = desk.manifest()
    made = ToldShards()
    told = [replace(ODD, step=step, lineage=LINE) for step in (final.step, final.step + 5)]
    for written in (*told, ODD):
        made.wrote(written)
    made.finished([Stored(final, (0, 1))])
    assert made.again() == [told[1], ODD], "of another lineage, or later"


def test_the_oldest_are_forgotten() -> None:
    made = ToldShards()
    told = [replace(ODD, step=step) for step in range(9)]
    for written in told:
        made.wrote(written)
        made.skips(replace(FULL, step=written.step + 100))
    assert made.written == told[-4:]
    assert [each.step for each in made.skipped] == [105, 106, 107, 108]
