"""Writing takes longer than many intervals: most checkpoints are skipped, and some are made."""

from __future__ import annotations

from elasticd.checkpoints.manifest import Stored
from elasticd.core.words.shards import ManifestStore, PullShards
from elasticd.types import NodeId
from tests.unit.core.saving.desk import GENERATION, A, B, C, Desk

MANY = range(20, 95, 5)
"""Steps of checkpoints that become due while one is written."""
OWN = "c" * 64


def skipped(desk: Desk, *nodes: NodeId) -> None:
    for step in MANY:
        for node in nodes:
            desk.failed(node, step, refused=False)


def test_what_was_written_meanwhile_is_not_forgotten() -> None:
    desk = Desk(A, replicas=1)
    desk.form(A)
    skipped(desk, A)
    desk.wrote(A, 0, 1, check=OWN)
    skipped(desk, A)
    desk.stored(A)
    assert desk.announced() == [10]


def test_who_skipped_is_remembered_while_another_still_writes() -> None:
    desk = Desk(A, B, replicas=2)
    desk.form(A, B)
    desk.failed(B, refused=False)
    skipped(desk, A, B)
    desk.wrote(A, 0, 1, check=OWN)
    assert desk.asked(PullShards) == [B]


def test_one_that_is_still_written_outlasts_what_lacks_shards() -> None:
    desk = Desk(A, B, replicas=1)
    desk.form(A, B)
    desk.wrote(A, 0, check=OWN)
    for step in MANY:
        desk.wrote(A, 0, step=step, check=OWN)
        desk.failed(B, step, refused=False)
    desk.wrote(B, 1, check=OWN)
    for node in (A, B):
        desk.stored(node)
    assert desk.announced() == [10]


def test_a_manifest_that_takes_long_to_store_is_waited_for() -> None:
    desk = Desk(A, B)
    desk.form(A, B)
    for step in (10, *MANY):
        desk.wrote(A, 0, 1, step=step, check=OWN)
        desk.wrote(B, 0, 1, step=step, check=OWN)
    desk.stored(A)
    desk.stored(B)
    assert desk.announced() == [10]


def test_the_oldest_copy_on_its_way_is_waited_for_and_few_are_asked_at_a_time() -> None:
    desk = Desk(A, B)
    desk.form(A, B)
    for step in (10, *MANY):
        desk.wrote(A, 0, 1, step=step, check=OWN)
        desk.failed(B, step, refused=False)
    assert desk.asked(PullShards) == [B, B]
    desk.wrote(B, 0, 1)
    assert desk.asked(ManifestStore) == [A, B]
    desk.stored(A)
    desk.stored(B)
    assert desk.announced() == [10]


def test_of_the_last_state_copies_are_asked_for_at_once() -> None:
    desk = Desk(A, B)
    desk.form(A, B)
    for step in (10, 20, 100):
        desk.wrote(A, 0, 1, step=step, check=OWN)
        desk.failed(B, step, refused=False)
    assert desk.asked(PullShards) == [B, B, B]


def test_who_was_too_busy_to_write_is_asked_to_copy_last() -> None:
    desk = Desk(A, B, C)
    desk.form(A, B, C)
    desk.failed(B, count=1, refused=False)
    desk.wrote(C, check=OWN, count=1)
    desk.wrote(A, 0, count=1, check=OWN)
    assert desk.asked(PullShards) == [C]


def test_a_last_state_is_not_forgotten_for_one_that_is_spoken_of_late() -> None:
    desk = Desk(A, B)
    desk.form(A, B)
    for step in (*MANY[:7], 100):
        desk.wrote(A, 0, step=step, check=OWN)
    desk.wrote(A, 0, step=95, check=OWN)
    desk.wrote(B, 1, step=100, check=OWN)
    assert desk.asked(PullShards) == [A], "all of it is known"


def overdue(desk: Desk) -> None:
    """Until the copy that was asked for is waited for no more."""
    desk.later(min(desk.made.deadlines()) - desk.ctx.now)


def test_a_copy_that_does_not_come_is_made_by_another() -> None:
    desk = Desk(A, B, C)
    desk.wrote(A, 0, 1)
    assert desk.asked(PullShards) == [B]
    overdue(desk)
    assert desk.asked(PullShards) == [C]
    assert [emit.reason for emit in desk.emitted("checkpoint_refused")] == [
        "b does not store its part of step 10: it has not copied shards in 60 s"
    ]


def test_what_is_large_may_take_longer_to_copy() -> None:
    desk = Desk(A, B, C)
    desk.wrote(A, 0, 1, size=10**9)
    overdue(desk)
    assert [emit.reason for emit in desk.emitted("checkpoint_refused")] == [
        "b does not store its part of step 10: it has not copied shards in 260 s"
    ]


def test_a_copy_that_comes_after_all_counts() -> None:
    desk = Desk(A, B)
    desk.wrote(A, 0, 1)
    overdue(desk)
    assert desk.asked(ManifestStore) == [A], "with fewer replicas"
    desk.stored(A)
    assert desk.announced() == [10]
    desk.wrote(B, 0, 1)
    desk.made.learn({A: (Stored(desk.newest(), (0, 1)),)})
    desk.made.advance()
    assert desk.asked(ManifestStore) == [A, B]


def test_who_refuses_a_copy_late_has_what_it_wrote() -> None:
    desk = Desk(A, B)
    desk.form(A, B)
    desk.wrote(A, 0, check=OWN)
    desk.wrote(B, 1, check=OWN)
    assert desk.asked(PullShards) == [A]
    overdue(desk)
    desk.failed(A)
    for node in desk.asked(ManifestStore):
        desk.stored(node)
    assert desk.announced() == [10]


def test_what_comes_late_of_a_state_that_differs_does_not_count() -> None:
    desk = Desk(A, B, C)
    desk.form(A, B)
    desk.wrote(A, 0, 1, check=OWN)
    desk.failed(B, refused=False)
    assert desk.asked(PullShards) == [C]
    overdue(desk)
    desk.made.doubt([A], GENERATION)
    desk.wrote(C, 0, 1)
    assert not any(checkpoint.complete for checkpoint in desk.made.open.values())


def test_a_copy_that_is_not_looked_at_is_no_reason_to_look_again_at_once() -> None:
    desk = Desk(A, B, C)
    desk.wrote(A, 0, 1)
    desk.wrote(B, 0, 1)
    kept = Stored(desk.manifest(), (0, 1))
    for node in (A, B, C):
        desk.stored(node)
    nothing = Stored(kept.manifest, ())
    desk.asked(PullShards)
    desk.made.learn({A: (kept,), B: (nothing,), C: (nothing,)})
    desk.made.advance()
    assert len(desk.asked(PullShards)) == 1
    desk.made.learn({})
    desk.later(2 * desk.ctx.timing.write_seconds)
    assert min(desk.made.deadlines(), default=desk.ctx.now + 1) > desk.ctx.now
