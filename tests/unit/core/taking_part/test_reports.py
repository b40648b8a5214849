"""What a member tells its leader, and tells again to the next one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from elasticd.core.context import Context
from elasticd.core.taking_part.reports import Reports
from elasticd.core.words.effects import Reached, Send
from elasticd.core.words.worlds import Fault, MemberStatus, Progress
from elasticd.types import Lineage, NodeId, Point, Tag
from tests.unit.core.leading.bench import status_of
from tests.unit.core.taking_part.post import EPOCH, world_of
from tests.unit.core.taking_part.test_member_faults import EMPTY, LEADER, ME
from tests.unit.core.taking_part.test_told import COPIED, FULL

WORLD = world_of(LEADER, ME, step=3)
NEXT = NodeId("next")


@pytest.fixture
def reports() -> Reports:
    """Of a member that nobody has asked yet."""
    ctx = Context(ME, lambda: "nonce", now=100.0)
    return Reports(ctx, EMPTY.job, lambda epoch: replace(status_of("active"), epoch=epoch))


def told(reports: Reports) -> list[tuple[NodeId, Any]]:
    found = [(f.to, f.message) for f in reports.ctx.effects if isinstance(f, Send)]
    reports.ctx.effects.clear()
    return found


def at(step: int, generation: Tag = WORLD.generation) -> Progress:
    return Progress(
        EMPTY.job, generation, step, EMPTY.stamp, step, 0.5, "compute", 1.0, 0, {}
    )  # fmt: skip


def test_without_a_leader_nobody_is_told(reports: Reports) -> None:
    reports.report()
    reports.accuse("oom", "no memory")
    reports.trains(at(4))
    assert told(reports) == []


def test_a_leader_hears_how_the_member_is_and_what_was_written(reports: Reports) -> None:
    reports.wrote(COPIED)
    reports.skips(FULL)
    reports.follow(EPOCH, trains=False)
    (to, status), *rest = told(reports)
    assert to == LEADER and isinstance(status, MemberStatus) and status.epoch == EPOCH
    assert [message for _, message in rest] == [FULL, COPIED]


def test_a_leader_hears_of_shards_that_are_those_of_the_last_step(reports: Reports) -> None:
    reports.enter(replace(WORLD, last=COPIED.step, lineage=COPIED.lineage))
    reports.follow(EPOCH, trains=True)
    told(reports)
    for written in (COPIED, replace(COPIED, lineage=Lineage("o")), replace(COPIED, step=7)):
        reports.wrote(written)
    assert [message.last for _, message in told(reports)] == [True, False, False]


def test_the_next_leader_hears_how_far_a_trainer_is_that_trains(reports: Reports) -> None:
    reports.enter(WORLD)
    reports.trains(at(4))
    reports.follow(Tag(2, NEXT, "n"), trains=True)
    assert told(reports)[-1] == (NEXT, at(4))
    reports.follow(Tag(3, NEXT, "n"), trains=False)
    assert at(4) not in [message for _, message in told(reports)]


def test_what_broke_here_is_kept_for_a_leader_to_come(reports: Reports) -> None:
    reports.enter(WORLD)
    reports.follow(EPOCH, trains=True)
    told(reports)
    reports.accuse("reducer_gone", "its reducer died", age_seconds=1.5)
    ((to, fault),) = told(reports)
    assert to == LEADER and isinstance(fault, Fault)
    assert (fault.generation, fault.culprit, fault.fault) == (WORLD.generation, ME, "reducer_gone")
    assert fault.age_seconds == 1.5
    assert reports.faults == [("reducer_gone", "its reducer died")]


def test_what_breaks_nothing_is_told_and_not_kept(reports: Reports) -> None:
    reports.follow(EPOCH, trains=False)
    told(reports)
    reports.accuse("worker_exit", "exit status 1", kept=False)
    assert len(told(reports)) == 1 and reports.faults == []


def test_in_another_world_nothing_speaks_against_the_node_yet(reports: Reports) -> None:
    reports.enter(WORLD)
    reports.accuse("ring_broken", "closed")
    assert reports.broken_at == 100.0
    reports.enter(world_of(LEADER, ME, counter=5, step=3))
    assert reports.faults == [] and reports.broken_at < 0


def test_only_a_fault_of_the_ring_says_that_the_ring_broke(reports: Reports) -> None:
    reports.enter(WORLD)
    reports.accuse("oom", "no memory")
    assert reports.broken_at < 0


# --- committed steps ------------------------------------------------------------------------------


def reached(reports: Reports) -> list[int]:
    return [f.step for f in reports.ctx.effects if isinstance(f, Reached)]


def test_committed_steps_are_written_down_and_never_go_back(reports: Reports) -> None:
    reports.enter(WORLD)
    for step in (4, 5, 5, 4):
        reports.trains(at(step))
    assert reached(reports) == [4, 5] and reports.committed == 5


def test_a_world_that_is_formed_starts_from_a_committed_step(reports: Reports) -> None:
    reports.formed(WORLD)
    assert reports.committed == 3 and reached(reports) == [3]


def test_a_world_that_goes_back_takes_them_back(reports: Reports) -> None:
    reports.enter(WORLD)
    reports.trains(at(9))
    on = world_of(LEADER, ME, counter=5, step=8)
    reports.enter(on)
    assert reports.committed == 9
    reports.enter(replace(on, step=5, rung="restore", generation=Tag(6, LEADER, "r")))
    assert reports.committed < 9


def test_what_another_line_has_committed_says_nothing_of_this_one(reports: Reports) -> None:
    """The others went back while this member was away."""
    reports.enter(WORLD)
    reports.trains(at(9))
    parent = Point(WORLD.lineage, 6, WORLD.stamp)
    other = replace(world_of(LEADER, ME, counter=6, step=7), lineage=Lineage("other"))
    for opened, committed in ((None, 7), (parent, 7), (replace(parent, step=8), 8)):
        reports.enter(replace(other, parent=opened))
        assert reports.committed == committed
        reports.enter(WORLD)
        reports.trains(at(9))


def test_a_restarted_daemon_knows_what_was_seen_committed_in_its_newest_world(
    reports: Reports,
) -> None:
    old, other = Tag(1, LEADER, "old"), replace(world_of(ME), job=type(EMPTY.job)("job-2"))
    seen = (
        Reached(EMPTY.job, old, 99),
        Reached(other.job, WORLD.generation, 98),
        Reached(EMPTY.job, WORLD.generation, 7),
    )
    reports.recall((), WORLD, seen)
    assert (reports.world, reports.committed) == (WORLD, 7)


# --- when -----------------------------------------------------------------------------------------


def test_several_things_are_told_together_after_a_moment(reports: Reports) -> None:
    reports.follow(EPOCH, trains=False)
    reports.gather()
    first = reports.ways_at
    reports.ctx.now += 0.05
    reports.gather()
    assert reports.ways_at == first == 100.0 + reports.ctx.timing.gather_seconds
    reports.report()
    assert reports.ways_at > 1e9, "it has been told"


def test_of_a_job_that_has_ended_nobody_is_told_how_the_member_is(reports: Reports) -> None:
    reports.follow(EPOCH, trains=False)
    told(reports)
    reports.close()
    reports.report()
    assert told(reports) == [] and reports.world is None
