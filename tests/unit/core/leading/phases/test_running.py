"""What a world that trains is left for, and what not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elasticd.checkpoints.manifest import Stored
from elasticd.core.jobs.nodes import NodeDuties
from elasticd.core.leading.phases.moves import Rest
from elasticd.core.words.records import View, World, relief_of
from elasticd.core.words.shards import Digest, ShardsFailed, ShardsWritten
from elasticd.core.words.worlds import (
    Discharge,
    Freeze,
    Halt,
    Hung,
    Lend,
    Pressed,
)
from elasticd.types import Tag, TrainerPhase
from tests.unit.core.leading.bench import (
    EPOCH,
    JOB,
    STAMP,
    A,
    B,
    Bench,
    C,
    fault,
    holds,
    manifest_of,
    point_of,
    started,
    status_of,
    world_of,
)


def test_a_world_is_left_for_a_member_that_fails_and_not_for_any_other_node() -> None:
    bench = Bench()
    world = bench.adopt(A, B)
    bench.driver.hear(C, fault(world, C))
    assert bench.phase == "running"
    bench.driver.hear(B, fault(world, B))
    assert bench.phase == "freezing"
    assert [node for node, _ in bench.sent(Freeze)] == [A]
    assert bench.office.account.recoveries == 1


def test_a_fault_of_an_older_world_is_stale() -> None:
    bench = Bench()
    bench.adopt()
    bench.driver.hear(B, fault(world_of(A, B, generation=Tag(1, A, "old")), B, "link_lost"))
    assert bench.phase == "running"


def test_a_reduction_to_which_all_have_delivered_may_not_stand_still() -> None:
    bench = Bench()
    world = started(bench)
    bench.progress(world, 2, phase="reduce")
    bench.pass_time(bench.ctx.timing.hang_seconds - 0.1)
    assert bench.phase == "running"
    bench.pass_time(0.1)
    assert bench.phase == "freezing"
    assert "every member delivered step 3" in bench.office.account.evidence()


def test_nor_may_a_world_that_starts_from_the_last_step() -> None:
    """Simulator, seed 1795529656619: nobody looked at a ring in which no step was to be made."""
    bench = Bench()
    last = bench.office.spec.train.steps
    world = bench.adopt(step=last)
    bench.progress(world, last, phase="reduce")
    bench.pass_time(bench.ctx.timing.hang_seconds)
    assert bench.phase == "freezing"
    assert f"every member delivered step {last}," in bench.office.account.evidence()


def test_a_member_that_computes_for_too_long_is_told_to_end_and_the_world_waits() -> None:
    bench = Bench()
    world = started(bench)
    bench.progress(world, 2, A, B, phase="reduce")
    limit = bench.office.spec.recovery.user_code_seconds
    bench.pass_time(1.0)
    for _ in range(int(limit)):
        bench.pass_time(1.0)
    assert bench.phase == "running"
    assert [node for node, _ in bench.sent(Hung)] == [C]


def test_the_odd_one_out_takes_the_others_state() -> None:
    bench = Bench()
    world = bench.adopt(step=7)
    for node, digest in ((A, "11"), (B, "22"), (C, "11")):
        bench.driver.hear(node, Digest(JOB, world.generation, 10, STAMP, digest))
    assert bench.phase == "freezing"
    entered = world.generation
    same = holds(point_of(10), entered)
    bench.answer(a=same, b=same, c=same)
    formed = bench.driver.world
    assert formed is not None
    sources = dict(zip(formed.members, formed.sources, strict=True))
    assert (sources[A], sources[C]) == ("keep", "keep")
    assert sources[B] in ("peer:a", "peer:c")


def test_a_drained_node_is_left_out_at_a_steps_boundary_and_then_let_go() -> None:
    bench = Bench()
    world = started(bench)
    bench.driver.want(bench.record, frozenset(), NodeDuties(leaving=frozenset({C})))
    bench.driver.tick()
    assert bench.phase == "running", "not in the middle of a step"
    bench.progress(world, 2, A)
    assert bench.phase == "freezing"
    entered = world.generation
    bench.answer(**{node: holds(point_of(2), entered) for node in bench.members})
    formed = bench.form()
    assert set(formed.members) == {A, B}
    assert formed.reason.endswith("c is to be left out")
    bench.say("active", world, C)
    assert [node for node, _ in bench.sent(Discharge)] == [C]
    bench.driver.tick()
    assert bench.sent(Discharge) == []


@pytest.mark.parametrize("phase", ["active", "finished"])
def test_who_comes_with_a_state_of_its_own_is_let_in_to_be_compared(phase: TrainerPhase) -> None:
    bench = Bench()
    world = bench.adopt(A, B)
    bench.say(phase, None, C)
    bench.progress(world, 1, A)
    assert [node for node, _ in bench.sent(Freeze)] == [A, B, C]


def test_who_comes_without_a_state_takes_it_while_the_others_train() -> None:
    bench = Bench()
    world = bench.adopt(A, B)
    bench.progress(world, 1)
    bench.progress(world, 2)
    assert bench.phase == "running"
    assert [(node, order.step) for node, order in bench.sent(Lend)] == [(A, 4), (B, 4)]


def test_memory_that_runs_short_is_given_back_at_the_next_step() -> None:
    bench = Bench()
    world = started(bench)
    bench.driver.hear(B, Pressed(JOB, world.generation, "1 GiB is left"))
    assert bench.phase == "running"
    bench.progress(world, 2, A)
    assert bench.phase == "freezing"
    bench.answer(**{n: holds(point_of(2), world.generation) for n in bench.members})
    formed = bench.driver.world
    assert formed is not None
    assert formed.relief > world.relief
    (event,) = bench.told("memory_relieved")
    assert event.reason.startswith("on b 1 GiB is left: ")


@pytest.mark.parametrize("level", [2, 3])
def test_what_was_given_up_is_given_back_at_the_next_step_when_asked(level: int) -> None:
    bench = Bench(relief=level)
    world = started(bench)
    assert world.relief == level
    record = replace(bench.record, relief=0, relief_turn=1)
    bench.driver.recall(record)
    assert bench.phase == "running"
    bench.progress(world, 2, A)
    assert bench.phase == "freezing"
    bench.answer(**{n: holds(point_of(2), world.generation) for n in bench.members})
    formed = bench.driver.world
    assert formed is not None
    assert (formed.relief, formed.relief_turn) == (0, 1)
    (event,) = bench.told("memory_given_back")
    assert event.reason.endswith("is given back")
    bench.driver.recall(replace(record, relief_turn=0, relief=level))
    assert relief_of(bench.driver.relieved(record)) == (1, 0)  # an old record changes nothing


def test_nothing_is_stopped_to_give_back_what_is_there() -> None:
    bench = Bench()
    world = started(bench)
    bench.driver.recall(replace(bench.record, relief_turn=1))
    bench.progress(world, 2, A)
    assert bench.phase == "running" and bench.told("memory_given_back") == []


def test_a_view_without_a_member_breaks_its_world() -> None:
    bench = Bench()
    bench.adopt()
    bench.ctx.departures.note(C, 48.0, "")
    bench.driver.on_view(View(replace(EPOCH, counter=2), (A, B)), ())
    assert bench.phase == "waiting"
    recovery = bench.office.account.recovery
    assert recovery is not None
    assert recovery.since == 48.0


def test_the_last_state_is_written_again_if_a_shard_of_it_is_nowhere_any_more() -> None:
    bench = Bench()
    world = bench.adopt()
    last = bench.office.spec.train.steps
    bench.progress(world, last)
    name = (world.lineage, last, STAMP, 3)
    for index, node in enumerate(world.members):
        rows = ((index, 100, "ab"),)
        bench.driver.hear(node, ShardsWritten(JOB, world.generation, *name, rows, "cd", 0.1, 0.2))
    assert bench.phase == "closing"
    failed = ShardsFailed(JOB, world.generation, *name, "rot", False, ((1, B),))
    bench.driver.hear(A, failed)
    assert bench.phase == "freezing"
    held = holds(point_of(last), world.generation)
    bench.answer(**{node: held for node in bench.members})
    formed = bench.form()
    assert formed.reason.endswith(f"the state of step {last} is to be written again")
    assert (formed.step, formed.checkpointed) == (last, -1)
    assert bench.office.account.recoveries == 0


def test_a_drained_node_stays_where_too_few_would_be_left() -> None:
    bench = Bench(least=3)
    world = started(bench)
    bench.driver.want(bench.record, frozenset(), NodeDuties(leaving=frozenset({C})))
    bench.progress(world, 2)
    assert (bench.phase, bench.sent(Freeze)) == ("running", [])


def test_no_more_are_let_in_than_the_job_may_have() -> None:
    full, room = Bench(most=2), Bench(most=3)
    for bench in (full, room):
        world = bench.adopt(A, B)
        bench.say("active", world, A, B)
        bench.progress(world, 1)
        bench.progress(world, 2)
    assert full.sent(Lend) == []
    assert [node for node, _ in room.sent(Lend)] == [A, B]


def test_who_is_prepared_keeps_its_place_when_another_comes_back() -> None:
    bench = Bench(most=2)
    world = bench.adopt(B)
    bench.say("starting", None, A)
    bench.progress(world, 1)
    bench.progress(world, 2)
    assert list(bench.office.growth.newcomers) == [C]
    bench.say("ready", None, A)
    bench.progress(world, 3)
    assert list(bench.office.growth.newcomers) == [C]


def test_a_newcomer_that_is_prepared_for_too_long_is_left_out_for_a_while() -> None:
    bench = Bench()
    world = bench.adopt(A, B)
    bench.progress(world, 1)
    bench.progress(world, 2)
    bench.pass_time(bench.ctx.timing.load_seconds - 0.1)
    assert bench.office.trust.fit(C)
    bench.pass_time(0.1)
    assert not bench.office.trust.fit(C)


def paused(bench: Bench) -> World:
    """The operator wants it to rest, and a step is committed after that."""
    world = started(bench)
    bench.driver.want(replace(bench.record, intent=1), frozenset())
    bench.progress(world, 2)
    return world


def test_a_paused_job_rests_once_all_have_halted_and_that_step_is_stored() -> None:
    bench = Bench()
    world = paused(bench)
    assert [(node, halt.step) for node, halt in bench.sent(Halt)] == [(A, 4), (B, 4), (C, 4)]
    kept = replace(manifest_of(4, A, B, C, lineage=world.lineage), generation=world.generation)
    status = replace(status_of("active", world), stored=(Stored(kept, (0,)),))
    bench.progress(world, 4, A, B, phase="paused")
    for node in bench.members:
        bench.driver.hear(node, status)
    assert bench.driver.end is None, "c has yet to come there"
    bench.progress(world, 4, C, phase="paused")
    assert bench.driver.end == Rest(4, str(world.generation))


def test_a_job_that_shall_go_on_after_all_is_told_so() -> None:
    bench = Bench()
    world = paused(bench)
    bench.sent(Halt)
    bench.driver.want(replace(bench.record, intent=2), frozenset())
    bench.driver.tick()
    assert [(node, halt.step) for node, halt in bench.sent(Halt)] == [(A, -1), (B, -1), (C, -1)]
    assert bench.driver.world == world


def test_a_paused_job_lets_nobody_in_and_nobody_go() -> None:
    bench = Bench()
    world = bench.adopt(A, B)
    bench.say("active", None, C)
    bench.driver.want(
        replace(bench.record, intent=1), frozenset(), NodeDuties(leaving=frozenset({B}))
    )
    bench.progress(world, 1)
    assert (bench.phase, bench.sent(Freeze)) == ("running", [])


def test_a_world_outlives_a_view_that_has_its_members() -> None:
    bench = Bench()
    world = started(bench)
    bench.driver.on_view(View(replace(EPOCH, counter=2), (A, B, C)), ())
    assert (bench.phase, bench.driver.world) == ("running", world)
    assert bench.sent(Freeze) == []
