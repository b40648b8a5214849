"""Whether a job runs on a node, and what the node tells of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elasticd.checkpoints.manifest import Stored
from elasticd.core.words import effects as e
from elasticd.core.words.messages import DAEMONS
from elasticd.core.words.records import Path
from elasticd.core.words.shards import PullShards, ShardsFailed, ShardsWritten
from elasticd.core.words.trainers import TrainerAtRun, TrainerProbed
from elasticd.core.words.worlds import Discharge, Fault, Holding, MemberStatus, Report
from elasticd.ipc.frames import encode
from elasticd.recovery.fitness import Unfit
from elasticd.types import Tag
from tests.unit.checkpoints.test_choose import at
from tests.unit.core.taking_part.post import EPOCH, HELD, RECORD, Post, world_of
from tests.unit.core.taking_part.test_member_faults import EMPTY, LEADER, ME

WORLD = world_of(LEADER, ME, step=3)


def test_a_node_with_years_of_checkpoints_is_heard() -> None:
    """All of them are more than a frame takes: such a message is never sent."""
    post = Post()
    post.attend()
    stored = tuple(Stored(at(step), (0, 1, 2)) for step in range(20_000))
    post.member.reports.on_stored(stored)
    status = post.status()
    assert len(encode(DAEMONS.encode(status))) < 2 << 20
    assert status.stored[-1] == stored[-1]


# --- files and trainers ---------------------------------------------------------------------------


def test_no_trainer_is_started_before_the_jobs_files_are_here() -> None:
    post = Post()
    post.attend()
    assert len(post.done(e.EnsureArchive)) == 1 and post.done(e.StartTrainer) == []
    post.archive()
    assert len(post.done(e.StartTrainer)) == 1


def test_files_that_can_not_be_had_are_told_and_tried_again() -> None:
    post = Post()
    post.attend()
    post.archive(False, "no node has them")
    assert "no node has them" in post.status().trouble
    assert post.done(e.StartTrainer) == []
    (due,) = post.member.deadlines()
    post.done(e.EnsureArchive)
    post.ctx.now = due - 0.1
    post.attend()
    assert post.done(e.EnsureArchive) == []
    post.ctx.now = due
    post.attend()
    assert len(post.done(e.EnsureArchive)) == 1
    post.member.follow(EPOCH)
    assert "no node has them" in post.status().trouble, "another leader is told meanwhile"
    post.archive()
    assert post.status().trouble == "" and len(post.done(e.StartTrainer)) == 1


@pytest.mark.parametrize("state", ["queued", "finished", "failed", "cancelled"])
def test_a_job_that_runs_no_more_ends_its_trainer_and_is_told_of_no_more(state: str) -> None:
    post = Post()
    child = post.ready()
    post.attend(state=state)
    assert post.killed() == [child] and post.member.ended
    post.ctx.effects.clear()
    post.attend()
    post.member.reports.report()
    assert post.ctx.effects == []


def test_a_trainer_that_dies_is_replaced() -> None:
    post = Post()
    child = post.ready()
    post.ends(child, -9)
    assert post.started() != child


def test_where_the_script_fails_nothing_is_started_again() -> None:
    post = Post()
    child = post.ready()
    post.ends(child, 1, "Traceback\nKeyError: 'x'")
    assert post.done(e.StartTrainer) == []
    post.attend()
    assert post.done(e.StartTrainer) == []
    assert post.status().trouble == "KeyError: 'x'", "its last line"


def test_nothing_is_started_while_too_few_nodes_are_there() -> None:
    post = Post()
    post.attend(short=True)
    post.archive()
    assert post.done(e.StartTrainer) == []
    post.attend()
    child = post.started()
    post.attend(short=True)
    assert post.killed() == [], "what runs goes on waiting"
    post.ends(child, -9)
    assert post.done(e.StartTrainer) == []
    post.attend()
    assert len(post.done(e.StartTrainer)) == 1


def test_nothing_is_started_by_who_was_there_before_the_event() -> None:
    post = Post()
    child = post.ready()
    post.member.part.on_child(e.ChildExited(child, -9, ""))
    assert post.done(e.StartTrainer) == []
    post.attend(short=True)
    assert post.done(e.StartTrainer) == [], "the view was given up after it"


def test_nothing_is_started_before_it_is_known_who_is_there() -> None:
    post = Post()
    post.archive()
    assert post.done(e.StartTrainer) == []
    post.attend()
    assert len(post.done(e.StartTrainer)) == 1


def test_a_freeze_that_comes_with_the_trainers_end_is_answered_by_the_spare() -> None:
    """Its leader may be on this node, and ask before the event is taken in."""
    post = Post()
    child = post.enter(WORLD)
    post.progress(child, WORLD, WORLD.step + 1)
    post.attend()
    spare = post.started(spare=True)
    post.says(spare, TrainerAtRun({}))
    post.warm()
    post.member.part.on_child(e.ChildExited(child, -9, ""))
    post.freeze()
    assert post.told(Holding) == []
    post.attend()
    (holding,) = post.told(Holding)
    assert holding.able and holding.point is None
    assert post.member.part.owns(spare)


# --- nodes that are not to train ------------------------------------------------------------------


def test_a_drained_node_starts_nothing() -> None:
    post = Post()
    post.attend(unwanted=True)
    post.archive()
    assert post.done(e.StartTrainer) == []
    assert not post.member.wants_reducer


def test_a_drained_node_trains_on_until_the_world_runs_without_it() -> None:
    post = Post()
    child = post.enter(WORLD)
    post.attend(unwanted=True)
    assert post.killed() == [] and not post.member.let_go
    post.member.on_order(Discharge(EMPTY.job), EPOCH, bound=False)
    assert post.killed() == [], "it is in the world"
    post.freeze(alone=True)
    post.member.on_order(Discharge(EMPTY.job), EPOCH, bound=False)
    assert child not in post.killed(), "it was asked what it holds"
    post.holds(child, post.freezes()[-1])
    post.ctx.effects.clear()
    post.member.on_order(Discharge(EMPTY.job), EPOCH, bound=False)
    assert post.killed() == [child] and post.member.let_go


def test_a_node_that_may_train_again_does() -> None:
    post = Post()
    post.attend(unwanted=True)
    post.archive()
    post.attend()
    assert len(post.done(e.StartTrainer)) == 1 and not post.member.let_go


def test_a_node_that_the_job_goes_on_without_starts_nothing_until_it_is_tried_again() -> None:
    post = Post(replace(RECORD, unfit=(Unfit(ME, 1, "no dataset here"),)))
    post.attend()
    post.archive()
    assert post.done(e.StartTrainer) == []
    post.attend(unfit=(Unfit(ME, 2, "no dataset here"),))
    assert len(post.done(e.StartTrainer)) == 1
    assert post.status().tried == 2, "the leader can tell what was begun since"


def test_being_tried_again_forgets_what_has_failed() -> None:
    post = Post()
    child = post.ready()
    post.ends(child, 1, "Traceback\nKeyError: 'x'")
    post.attend(unfit=(Unfit(ME, 2, "KeyError"),))
    assert len(post.done(e.StartTrainer)) == 1
    assert post.status().failing is None


def test_a_trainer_in_a_world_is_not_begun_anew_for_that() -> None:
    post = Post()
    post.enter(WORLD)
    post.attend(unfit=(Unfit(ME, 2, "KeyError"),))
    assert post.killed() == []


def test_what_a_trainer_computed_in_a_world_before_is_not_of_this_one() -> None:
    """It is told again to a daemon that was restarted; it is to be computed here, too."""
    post = Post()
    child = post.enter(WORLD)
    told = TrainerProbed(True, "g", "u", "l", "s", generation=EMPTY.generation)
    post.says(child, told)
    assert post.told(MemberStatus) == []
    post.says(child, replace(told, generation=WORLD.generation))
    trainer = post.status().trainer
    assert trainer is not None and trainer.probe == told.result()


# --- the leader's orders --------------------------------------------------------------------------


def test_an_order_of_another_view_is_stale() -> None:
    post = Post()
    child = post.ready()
    post.freeze()
    post.holds(child, post.freezes()[-1])
    post.form(replace(WORLD, epoch=Tag(9, LEADER, "n")))
    assert post.member.world is None
    post.form(WORLD, bound=True)
    assert post.member.world is None, "a newer view is promised"
    post.form(WORLD)
    assert post.member.world == WORLD


def test_a_world_is_journalled_before_anything_is_done_in_it() -> None:
    post = Post()
    child = post.ready()
    post.warm()
    post.freeze(alone=False)
    post.holds(child, post.freezes()[-1])
    post.ctx.effects.clear()
    post.form(WORLD)
    assert isinstance(post.ctx.effects[0], e.Persist) and post.ctx.effects[0].record == WORLD
    assert [f.world for f in post.done(e.EnterWorld)] == [WORLD]


def test_whoever_asks_is_told_all_that_is_known() -> None:
    post = Post()
    child = post.enter(WORLD)
    post.progress(child, WORLD, 4)
    post.ctx.effects.clear()
    post.member.on_order(Report(EMPTY.job), EPOCH, bound=False)
    status = post.status()
    assert (status.world, status.committed) == (WORLD, 4)
    assert status.trainer is not None and status.trainer.phase == "active"


def test_a_new_view_asks_anew() -> None:
    """What the last leader asked is void."""
    post = Post()
    child = post.ready()
    post.freeze()
    post.member.follow(Tag(2, LEADER, "n"))
    post.holds(child, post.freezes()[-1])
    assert post.told(Holding) == []


# --- links and shards -----------------------------------------------------------------------------


def test_links_are_told_at_once_or_several_together() -> None:
    post = Post()
    post.enter(WORLD)
    post.member.on_ways(gather=False)
    assert len(post.told(MemberStatus)) == 1
    for _ in range(3):
        post.member.on_ways(gather=True)
    assert post.told(MemberStatus) == []
    due = post.ctx.now + post.ctx.timing.gather_seconds
    assert due in post.member.deadlines()
    post.ctx.now = due
    post.attend()
    assert len(post.told(MemberStatus)) == 1


def test_the_leader_hears_of_the_addresses_that_this_node_has_now() -> None:
    post = Post()
    post.enter(WORLD)
    post.ctx.learn(post.ctx.me, (Path(post.ctx.me, "10.0.0.1", True),))
    post.ctx.learn(post.ctx.me, ())  # only that links have changed
    post.member.on_ways(gather=False)
    (status,) = post.told(MemberStatus)
    assert (status.hosts, status.paths) == (("10.0.0.1",), ())


def test_a_link_that_the_ring_needs_is_told_at_once_and_breaks_the_world() -> None:
    post = Post()
    post.enter(WORLD)
    post.ctx.reach.learn(LEADER, (Path(LEADER, "10.0.0.1", False),))
    post.member.on_ways(gather=True)
    assert len(post.told(MemberStatus)) == 1
    (fault,) = post.told(Fault)
    assert fault.fault == "link_lost" and "nothing comes back from leader" in fault.evidence


def pull(post: Post) -> e.FetchShards:
    order = PullShards(
        EMPTY.job, WORLD.generation, HELD.lineage, 3, HELD.stamp, 2, "m", ((0, 9, "d"),),
        ((LEADER,),),
    )  # fmt: skip
    post.member.on_order(order, EPOCH, bound=False)
    (fetch,) = post.done(e.FetchShards)
    return fetch


def test_shards_that_were_copied_are_told_to_be_here() -> None:
    post = Post()
    fetch = pull(post)
    assert fetch.sources == ((LEADER,),)
    post.member.on_pulled(e.ShardsFetched(fetch.report, True, "", ()))
    (told,) = post.told(ShardsWritten)
    assert told == fetch.report and told.shards == ((0, 9, "d"),)


def test_shards_that_could_not_be_had_are_told_with_the_reason_and_who_has_rotten_ones() -> None:
    post = Post()
    fetch = pull(post)
    post.member.on_pulled(e.ShardsFetched(fetch.report, False, "no room", (), True, ((0, LEADER),)))
    (failed,) = post.told(ShardsFailed)
    assert (failed.reason, failed.refused, failed.rotten) == ("no room", True, ((0, LEADER),))
