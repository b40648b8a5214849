"""How a job ends: who may leave when, what still breaks its last world, and when it is over."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elasticd.checkpoints.manifest import Stored
from elasticd.core.jobs.nodes import NodeDuties
from elasticd.core.leading import poison
from elasticd.core.leading.phases.moves import Outcome
from elasticd.core.words.records import View, World
from elasticd.core.words.worlds import Freeze, Hung, MemberStatus, Release
from elasticd.recovery.fitness import Unfit
from elasticd.types import NodeId, Tag, TrainerPhase
from tests.unit.core.leading.bench import (
    EPOCH,
    GENERATION,
    ME,
    STEPS,
    A,
    B,
    Bench,
    C,
    fault,
    manifest_of,
    started,
    status_of,
    world_of,
)

LAST = Stored(manifest_of(STEPS, A, B, C), (0,))


def says(
    phase: TrainerPhase, world: World | None, *stored: Stored, epoch: Tag = EPOCH
) -> MemberStatus:
    """A member that has done all steps."""
    told = status_of(phase, world, committed=STEPS)
    return replace(told, ready=world is not None, stored=stored, epoch=epoch)


def done(bench: Bench, *nodes: NodeId) -> World:
    """All steps are committed in a world of these; nothing is stored yet."""
    world = bench.adopt(*nodes)
    bench.progress(world, STEPS)
    for node in world.members:
        bench.driver.hear(node, says("finished", world))
    assert bench.phase == "closing"
    return world


def store(bench: Bench, world: World) -> None:
    """The last state is on all disks."""
    for node in world.members:
        bench.driver.hear(node, says("finished", world, LAST))


# --- how it is entered ----------------------------------------------------------------------------


def test_a_job_closes_with_its_last_step_and_not_with_the_one_before() -> None:
    bench = Bench()
    world = bench.adopt()
    bench.progress(world, STEPS - 1)
    bench.driver.tick()
    assert bench.phase == "running"
    bench.progress(world, STEPS)
    bench.driver.tick()
    assert bench.phase == "closing"
    assert bench.driver.summary()["state"] == "running", "it is not over for people"
    assert [rank["node"] for rank in bench.driver.summary()["ranks"]] == [A, B, C]


def test_a_status_tells_of_the_last_step_as_well() -> None:
    bench = Bench()
    world = bench.adopt()
    bench.driver.hear(A, says("finished", world))
    assert bench.phase == "closing"


def test_a_world_that_names_its_last_step_closes_there() -> None:
    bench, world = Bench(), replace(world_of(A, B, C), last=7)
    bench.say("active", world)
    bench.progress(world, 6)
    bench.driver.tick()
    assert bench.phase == "running"
    bench.progress(world, 7)
    bench.driver.tick()
    assert bench.phase == "closing"


# --- who may leave --------------------------------------------------------------------------------


def test_nobody_leaves_before_the_last_state_is_stored() -> None:
    bench = Bench()
    world = done(bench)
    before = Stored(manifest_of(STEPS - 50, A, B, C), (0,))
    for node in bench.members:
        bench.driver.hear(node, says("finished", world, before))
    assert bench.office.newest is not None and bench.office.newest.step == STEPS - 50
    assert bench.sent(Release) == []
    store(bench, world)
    assert [(n, r.generation) for n, r in bench.sent(Release)] == [
        (node, GENERATION) for node in (A, B, C)
    ]


def test_each_member_is_let_go_once_in_a_view() -> None:
    bench = Bench()
    world = done(bench)
    store(bench, world)
    bench.sent(Release)
    bench.driver.tick()
    assert bench.sent(Release) == []
    # What was told may have been lost with the view.
    epoch = Tag(2, ME, "w")
    bench.driver.on_view(View(epoch, bench.members), ())
    bench.driver.hear(A, says("finished", world, LAST, epoch=epoch))
    assert [node for node, _ in bench.sent(Release)] == [A]


def test_who_still_trains_is_not_let_go() -> None:
    bench = Bench()
    world = done(bench)
    bench.driver.hear(C, says("active", world, LAST))
    for node in (A, B):
        bench.driver.hear(node, says("finished", world, LAST))
    assert [node for node, _ in bench.sent(Release)] == [A, B]


def test_who_has_finished_in_another_world_is_not_let_go() -> None:
    bench = Bench()
    world = done(bench)
    older = replace(world, generation=Tag(1, A, "old"))
    bench.driver.hear(C, says("finished", older, LAST))
    for node in (A, B):
        bench.driver.hear(node, says("finished", world, LAST))
    assert [node for node, _ in bench.sent(Release)] == [A, B]


# --- what it is left for, and what not ------------------------------------------------------------


def test_nobody_is_let_in_or_left_out_any_more() -> None:
    bench = Bench()
    world = bench.adopt(A, B)
    bench.say("active", None, C)
    bench.driver.want(bench.record, frozenset(), NodeDuties(leaving=frozenset({B})))
    bench.progress(world, STEPS)
    bench.driver.tick()
    assert (bench.phase, bench.sent(Freeze)) == ("closing", [])


def test_a_member_that_fails_before_all_is_stored_is_replaced() -> None:
    bench = Bench()
    world = done(bench)
    bench.driver.hear(B, fault(world, B))
    assert bench.phase == "freezing"
    assert [node for node, _ in bench.sent(Freeze)] == [A, C]


def test_who_was_let_go_breaks_nothing_by_leaving() -> None:
    bench = Bench()
    world = done(bench)
    store(bench, world)
    bench.driver.hear(B, fault(world, B))
    assert bench.phase == "closing"
    assert bench.office.account.recoveries == 0
    assert bench.told("fault_detected") == []


def test_a_script_that_hangs_after_its_last_step_is_told_to_end() -> None:
    bench = Bench()
    world = started(bench)
    bench.progress(world, STEPS, A, B, phase="idle")
    bench.progress(world, STEPS, C, phase="user")
    for _ in range(1 + int(bench.office.spec.recovery.user_code_seconds)):
        bench.pass_time(1.0)
    assert bench.phase == "closing"
    assert [node for node, _ in bench.sent(Hung)] == [C]


def test_it_wakes_for_a_ring_that_hangs_at_the_end() -> None:
    bench = Bench()
    world = bench.adopt(step=STEPS)
    bench.progress(world, STEPS, phase="reduce")
    bench.driver.tick()
    assert bench.phase == "closing"
    due = bench.ctx.now + bench.ctx.timing.hang_seconds
    assert due in bench.driver.deadlines()


# --- when it is over ------------------------------------------------------------------------------


def test_a_job_is_over_when_the_last_member_has_left() -> None:
    bench = Bench()
    world = done(bench)
    store(bench, world)
    for node in (A, B):
        bench.driver.hear(node, says("done", world, LAST))
        assert bench.driver.end is None
    bench.driver.hear(C, says("done", world, LAST))
    assert bench.driver.end == Outcome("finished")


@pytest.mark.parametrize("phase", ["finished", "released", "active"])
def test_a_job_is_not_over_while_somebody_is_in_its_loop(phase: TrainerPhase) -> None:
    bench = Bench()
    world = done(bench)
    store(bench, world)
    bench.driver.hear(C, says(phase, world, LAST))
    for node in (A, B):
        bench.driver.hear(node, says("done", world, LAST))
    assert bench.driver.end is None


def test_a_job_is_not_over_while_its_last_state_is_not_stored() -> None:
    bench = Bench()
    world = done(bench)
    for node in bench.members:
        bench.driver.hear(node, says("done", world))
    assert bench.driver.end is None


def test_a_new_leader_that_finds_no_world_sees_that_the_job_is_over() -> None:
    """All have left, and forgotten their world; nobody starts it again."""
    bench = Bench()
    for node in bench.members:
        bench.driver.hear(node, says("done", None, LAST))
    assert bench.driver.end == Outcome("finished")
    assert bench.sent(Freeze) == []


def test_a_new_leader_waits_for_who_has_said_nothing() -> None:
    bench = Bench()
    for node in (A, B):
        bench.driver.hear(node, says("done", None, LAST))
    assert bench.driver.end is None
    bench.pass_time(bench.ctx.timing.holding_seconds)
    bench.driver.hear(A, says("done", None, LAST))
    assert bench.driver.end == Outcome("finished")


def test_after_a_new_view_all_have_to_say_again_that_they_have_left() -> None:
    bench, epoch = Bench(), Tag(2, ME, "w")
    world = done(bench)
    store(bench, world)
    bench.driver.on_view(View(epoch, bench.members), ())
    for node in (A, B):
        bench.driver.hear(node, says("done", world, LAST, epoch=epoch))
    assert bench.driver.end is None
    bench.driver.hear(C, says("done", world, LAST, epoch=epoch))
    assert bench.driver.end == Outcome("finished")


@pytest.mark.parametrize(
    ("left_out", "end"),
    [
        (Unfit(C, 1, "No space left", 7, looping=True), Outcome("failed", "No space left")),
        (Unfit(C, 2, "No space left", 7, looping=True), Outcome("finished")),
        (Unfit(C, 1, "No space left", 6, looping=True), Outcome("finished")),
        (Unfit(C, 1, "No space left", 8, looping=True), Outcome("finished")),
        (Unfit(C, 1, "no dataset", 7), Outcome("finished")),
    ],
    ids=["behind", "tried again", "in the loop", "before all went back", "before the loop"],
)
def test_who_breaks_out_of_its_loop_and_raises_behind_it_fails_the_job(
    left_out: Unfit, end: Outcome
) -> None:
    """When it raised nobody knew yet that this was the last step: the others went on."""
    bench = Bench(A, B, unfit=(left_out,))
    world = replace(world_of(A, B), last=7)
    stored = Stored(replace(manifest_of(7, A, B), last=True), (0,))
    bench.say("active", world)
    bench.progress(world, 7)
    phases: tuple[TrainerPhase, ...] = ("finished", "done")
    for phase in phases:
        for node in (A, B):
            told = status_of(phase, world, committed=7)
            bench.driver.hear(node, replace(told, stored=(stored,)))
    assert bench.driver.end == end


# --- who is killed behind its loop ----------------------------------------------------------------


def kills(bench: Bench, world: World, node: NodeId) -> None:
    """Its trainer, behind its loop; a new one comes to its ``Run``."""
    ended = replace(fault(world, node, text="signal 9 while released"), status=-9)
    bench.driver.hear(node, ended)
    bench.driver.hear(node, replace(says("ready", world, LAST), ready=False))


def test_who_is_killed_behind_its_loop_keeps_the_job_from_its_end_and_breaks_nothing() -> None:
    bench = Bench()
    world = done(bench)
    store(bench, world)
    kills(bench, world, B)
    (event,) = bench.told("fault_detected")
    assert "killed behind its loop" in event.fields["evidence"][0]
    assert bench.phase == "closing" and bench.office.account.recoveries == 0
    for node in (A, C):
        assert bench.phase == "closing", "it would take their states along"
        bench.driver.hear(node, says("done", world, LAST))
    assert bench.driver.end is None and bench.phase == "waiting"
    bench.driver.tick()
    assert [node for node, _ in bench.sent(Freeze)] == [B]


def test_it_ends_once_a_new_one_has_come_to_the_end_of_its_script() -> None:
    bench = Bench()
    world = done(bench)
    store(bench, world)
    kills(bench, world, B)
    for node in (A, B, C):
        assert bench.driver.end is None
        bench.driver.hear(node, says("done", world, LAST))
    assert bench.driver.end == Outcome("finished")


def test_nobody_waits_for_it_on_a_node_that_is_gone() -> None:
    bench, epoch = Bench(), Tag(2, ME, "w")
    world = done(bench)
    store(bench, world)
    kills(bench, world, B)
    bench.driver.on_view(View(epoch, (A, C)), ())
    for node in (A, C):
        bench.driver.hear(node, says("done", world, LAST, epoch=epoch))
    lacking = "the script was not seen to come to its end on b: what it writes behind its loop"
    assert bench.driver.end == Outcome("finished", f"{lacking} may be missing there")


def test_a_job_that_ends_without_its_main_says_so() -> None:
    bench, epoch = Bench(), Tag(2, ME, "w")
    world = done(bench)
    store(bench, world)
    bench.driver.on_view(View(epoch, (B, C)), ())
    for node in (B, C):
        bench.driver.hear(node, says("done", world, LAST, epoch=epoch))
    lacking = "the script was not seen to come to its end on a (main): what it writes behind its"
    assert bench.driver.end == Outcome("finished", f"{lacking} loop may be missing there")


def test_it_is_no_try_of_a_step() -> None:
    bench = Bench()
    world = done(bench)
    store(bench, world)
    kills(bench, world, B)
    assert not bench.office.trust.ladder.tries


def test_who_is_killed_there_in_world_after_world_fails_the_job() -> None:
    bench = Bench()
    for counter in range(2, 7):
        world = replace(world_of(A, B, C), generation=Tag(counter, A, "x"), step=STEPS)
        bench.office.course.begin(world)
        bench.office.course.release(B)
        ended = replace(fault(world, B, text="signal 6 while released"), status=-6)
        reasons = [poison.count(bench.office, ended) for _ in range(2)]
        again = "the script dies behind its last step, 5 times by now; signal 6 while released"
        assert reasons == [again if counter == 6 else ""] * 2, "one world is one time"
        assert bench.office.tries.resting == (counter > 2), "the first may be an accident"


@pytest.mark.parametrize("last", [7, 8])
def test_who_is_killed_where_the_others_have_left_their_loop_may_have_been_behind_it(
    last: int,
) -> None:
    """With ``break`` they leave it before the last step is known."""
    bench = Bench(A, B)
    before = bench.adopt(step=7)
    bench.progress(before, 7)
    bench.driver.hear(A, replace(fault(before, A), status=-9))
    world = replace(world_of(B, generation=Tag(3, B, "y"), step=7), last=last)
    bench.office.course.begin(world)
    stored = Stored(replace(manifest_of(last, A, B), last=True), (0,))
    told = replace(status_of("done", world, committed=last), stored=(stored,))
    bench.driver.hear(A, replace(status_of("ready"), stored=(stored,)))
    bench.driver.hear(B, told)
    assert bench.driver.end == (None if last == 7 else Outcome("finished"))
    bench.driver.hear(A, told)
    assert bench.driver.end == Outcome("finished")
