"""What a member tells of shards to a leader that comes later."""

from __future__ import annotations

from dataclasses import replace

from elasticd.checkpoints.manifest import Stored
from elasticd.core.taking_part.told import ToldShards, ToldStates
from elasticd.core.words.shards import Digest, ShardsFailed, ShardsWritten
from elasticd.types import JobId, Lineage, NodeId, Stamp, Tag
from tests.unit.core.leading.bench import world_of
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


def _of(step: int, generation: Tag) -> Digest:
    return Digest(ODD.job, generation, step, Stamp(f"{step}"), "c" * 64)


def test_what_a_state_was_like_is_told_as_of_the_world_that_goes_on_with_it() -> None:
    """It may be told late, by a disk that is slow."""
    first = world_of(A, B)
    later = replace(first, generation=Tag(3, A, "y"))
    made = ToldStates()
    made.hear(_of(5, first.generation), first)
    made.enter(A, later)
    assert made.told == [_of(5, later.generation)]
    assert made.hear(_of(6, first.generation), later) == _of(6, later.generation)
    for step in range(7, 12):
        made.hear(_of(step, later.generation), later)
    assert [told.step for told in made.told] == [8, 9, 10, 11]


def test_what_another_trainer_had_is_not_told_of_the_one_that_grew_by_updates() -> None:
    world, made = world_of(A, B), ToldStates()
    made.hear(_of(3, world.generation), world)
    grown = replace(world, generation=Tag(9, A, "n"), sources=("updates:b", "keep"))
    made.lost()
    made.enter(A, grown)
    assert made.told == []


def test_slow_disks_that_tell_of_old_states_leave_the_newest_to_be_told_again() -> None:
    world, made = world_of(A, B), ToldStates()
    for step in (40, 20, 25, 30, 35):
        made.hear(_of(step, world.generation), world)
    assert [told.step for told in made.told] == [25, 30, 35, 40]


def test_nothing_is_told_of_a_state_that_was_given_up_for_another() -> None:
    first = world_of(A, B)
    later = replace(first, generation=Tag(3, A, "y"), sources=("peer:b", "keep"))
    made = ToldStates()
    made.hear(_of(5, first.generation), first)
    made.enter(A, later)
    assert made.told == [] and made.hear(_of(6, first.generation), later) is None
    after_a_restart = ToldStates()
    after_a_restart.recall(later)
    after_a_restart.took(A, later, first.generation)
    assert after_a_restart.hear(_of(5, first.generation), later) is None


def test_what_was_kept_through_a_newer_world_is_told_again_behind_a_restart() -> None:
    first = world_of(A, B)
    later = replace(first, generation=Tag(3, A, "y"), sources=("keep", "peer:a"))
    made = ToldStates()
    made.recall(later)
    assert made.hear(_of(5, first.generation), later) is None, "an older trainer does not say"
    made.took(A, later, first.generation)
    told = made.hear(_of(5, first.generation), later)
    assert told is not None and told.generation == later.generation
    made.took(A, later, later.generation)
    assert made.hear(_of(5, first.generation), later) is None
