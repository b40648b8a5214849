"""One job under its leader: what each phase hears, does with a fault, and is followed by."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elasticd.core.leading.phases.freezing import Freezing
from elasticd.core.leading.phases.moves import Outcome, Rest
from elasticd.core.words.records import View, World
from elasticd.core.words.ring import Continue, Go, Listening
from elasticd.core.words.shards import Digest, ShardsFailed, ShardsWritten
from elasticd.core.words.worlds import (
    Discharge,
    Fault,
    Form,
    Formed,
    Freeze,
    Hung,
    Lend,
    Noted,
    Notice,
    Pressed,
    Ready,
)
from elasticd.types import NodeId, Sign, Tag, TrainerPhase
from tests.unit.core.leading.bench import (
    EPOCH,
    JOB,
    ME,
    STAMP,
    A,
    B,
    Bench,
    C,
    holds,
    point_of,
    status_of,
    world_of,
)


def fault(
    world: World, culprit: NodeId, kind: Sign = "worker_exit", text: str = "it died"
) -> Fault:
    return Fault(JOB, world.generation, culprit, kind, text)


def started(bench: Bench) -> World:
    """The members have started the job together, and a step is committed."""
    bench.say("ready")
    bench.answer(**{node: holds(None) for node in bench.members})
    world = bench.form()
    bench.say("active", world)
    bench.progress(world, 1)
    return world


# --- orienting ------------------------------------------------------------------------------------


def test_a_new_leader_does_nothing_before_all_have_spoken() -> None:
    bench = Bench()
    bench.say("ready", None, A, B)
    assert (bench.phase, bench.why) == ("orienting", "waiting to hear from c")
    assert bench.sent(Freeze) == []
    bench.say("ready", None, C)
    assert bench.phase == "freezing"
    assert [node for node, _ in bench.sent(Freeze)] == [A, B, C]


def test_a_new_leader_goes_on_without_those_that_stay_silent() -> None:
    bench = Bench()
    bench.say("ready", None, A, B)
    bench.pass_time(bench.ctx.timing.holding_seconds)
    bench.pass_time(bench.ctx.timing.start_seconds)
    assert [node for node, _ in bench.sent(Freeze)] == [A, B]


def test_a_whole_world_goes_on_untouched() -> None:
    bench = Bench()
    world = bench.adopt(step=7)
    assert bench.phase == "running"
    assert bench.driver.committed == 7
    assert bench.sent(Formed) == [(n, Formed(JOB, world.generation)) for n in (A, B, C)]
    assert bench.sent(Freeze) == []


def test_a_world_that_was_left_unfinished_is_formed_again() -> None:
    bench, world = Bench(), world_of(A, B, C)
    bench.say("active", world, A, B)
    bench.driver.hear(C, replace(status_of("active", world), ready=False))
    assert bench.phase == "freezing"
    assert "its leader was lost" in bench.office.account.evidence()


def test_a_fault_of_a_world_that_is_not_known_yet_counts_once_it_is() -> None:
    bench, world = Bench(), world_of(A, B, C)
    bench.say("active", world, A, B)
    bench.driver.hear(B, fault(world, B, "link_lost", "its ring broke"))
    bench.say("active", world, C)
    assert bench.phase == "freezing"
    assert bench.office.account.evidence() == "b: its ring broke"


def test_a_job_that_was_paused_goes_on_without_a_recovery() -> None:
    world = world_of(A, B, C)
    bench = Bench(rested=str(world.generation), step=20)
    phases: dict[NodeId, TrainerPhase] = {A: "ready", B: "starting", C: "starting"}
    for node, phase in phases.items():
        bench.driver.hear(node, replace(status_of(phase, world), ready=False))
    assert (bench.phase, bench.why) == ("waiting", "trainers are starting on b, c")
    assert bench.driver.committed == 20
    assert bench.office.account.resumes


# --- waiting --------------------------------------------------------------------------------------


def test_too_few_members_are_waited_for() -> None:
    bench = Bench(least=2)
    bench.say("ready", None, A)
    for node in (B, C):
        bench.driver.hear(node, replace(status_of(None), trouble="no disk"))
    assert bench.phase == "waiting"
    assert bench.why == "1 of at least 2 members are ready; b: no disk; c: no disk"
    assert bench.driver.end is None


def test_a_job_fails_if_no_member_will_ever_have_a_trainer() -> None:
    bench = Bench()
    for node in bench.members:
        bench.driver.hear(node, replace(status_of(None), trouble="no train.py", hopeless=True))
    assert isinstance(bench.driver.end, Outcome)
    assert bench.driver.end.state == "failed"
    assert "a: no train.py" in bench.driver.end.reason


def test_trainers_that_start_are_waited_for_but_not_for_ever() -> None:
    bench = Bench()
    bench.say("ready", None, A, B)
    bench.say("starting", None, C)
    assert bench.why == "trainers are starting on c"
    due = min(t for t in bench.driver.deadlines() if t > bench.ctx.now + 6)
    bench.pass_time(bench.ctx.timing.start_seconds)
    assert [node for node, _ in bench.sent(Freeze)] == [A, B]
    assert due <= bench.ctx.now, "the node was to be woken for it"


def test_a_paused_job_without_trainers_rests_at_once() -> None:
    bench = Bench(intent=1)
    bench.say("ready")
    assert bench.driver.end == Rest(0, "")


# --- freezing -------------------------------------------------------------------------------------


def test_only_answers_to_the_last_question_count() -> None:
    bench = Bench()
    bench.say("ready")
    for node in bench.members:
        bench.driver.hear(node, holds(None, serial="of before"))
    assert bench.phase == "freezing"
    bench.answer(a=holds(None), b=holds(None), c=holds(None))
    assert bench.phase == "forming"


def test_who_says_nothing_is_blamed_and_done_without() -> None:
    bench = Bench()
    bench.say("ready")
    asked = bench.sent(Freeze)
    for node, freeze in asked[:2]:
        bench.driver.hear(node, holds(None, serial=freeze.serial))
    bench.pass_time(3 * bench.ctx.timing.holding_seconds)
    assert bench.phase == "forming"
    assert [node for node, _ in bench.sent(Form)] == [A, B]
    (event,) = bench.told("fault_detected")
    assert (event.fields["culprit"], event.fields["fault"]) == (C, "hang")


def test_whose_trainer_has_ended_is_not_waited_for() -> None:
    bench = Bench()
    world = bench.adopt()
    bench.driver.hear(A, fault(world, A))
    bench.sent(Freeze)
    bench.say("active", world, B, C)
    bench.driver.hear(A, fault(world, B))
    freezing = bench.driver.stage.phase
    assert isinstance(freezing, Freezing)
    assert freezing.asked == {C}


def test_a_view_voids_what_was_asked() -> None:
    bench = Bench()
    bench.say("ready")
    (_, before), *_ = bench.sent(Freeze)
    bench.driver.on_view(View(Tag(2, ME, "w"), bench.members), ())
    assert (bench.phase, bench.why) == ("waiting", "waiting to hear from a, b, c")
    bench.driver.hear(A, holds(None, serial=before.serial))
    assert bench.phase == "waiting"


def test_a_ring_that_breaks_as_its_world_is_left_on_purpose_is_no_fault() -> None:
    bench = Bench()
    world = started(bench)
    bench.driver.want(bench.record, frozenset({C}), frozenset())
    bench.progress(world, 2)
    assert bench.phase == "freezing"
    bench.driver.hear(B, fault(world, B, "ring_broken", "its neighbour has gone"))
    assert bench.office.account.recovery is None


# --- forming --------------------------------------------------------------------------------------


def test_a_world_comes_up_in_order_and_is_announced_when_all_are_ready() -> None:
    bench = Bench()
    bench.say("ready")
    bench.answer(a=holds(None), b=holds(None), c=holds(None))
    (_, form), *_ = orders = bench.sent(Form)
    world = form.world
    assert [node for node, _ in orders] == [A, B, C]
    bench.driver.hear(A, Listening(JOB, world.generation))
    assert bench.sent(Go) == []
    bench.driver.hear(B, Listening(JOB, world.generation))
    assert [node for node, _ in bench.sent(Go)] == [C]
    bench.driver.hear(C, Listening(JOB, world.generation))
    assert [node for node, _ in bench.sent(Continue)] == [A]
    for node in (A, B):
        bench.driver.hear(node, Ready(JOB, world.generation))
    assert (bench.phase, bench.driver.forming) == ("forming", True)
    bench.driver.hear(C, Ready(JOB, world.generation))
    assert bench.phase == "running"
    (event,) = bench.told("world_formed")
    assert event.fields["members"] == [A, B, C]


def test_words_of_another_world_do_not_count() -> None:
    bench = Bench()
    bench.say("ready")
    bench.answer(a=holds(None), b=holds(None), c=holds(None))
    for node in bench.members:
        bench.driver.hear(node, Ready(JOB, Tag(99, B, "other")))
    assert bench.phase == "forming"


def test_a_world_that_does_not_form_is_blamed_on_who_is_late() -> None:
    bench = Bench()
    bench.say("ready")
    bench.answer(a=holds(point_of(3)), b=holds(point_of(3)), c=holds(point_of(3)))
    (_, form), *_ = bench.sent(Form)
    for node in (A, C):
        bench.driver.hear(node, Ready(JOB, form.world.generation))
    bench.pass_time(bench.ctx.timing.form_seconds)
    assert bench.phase == "freezing"
    evidence = bench.office.account.evidence()
    assert evidence == "b: the world did not form in 15 s; waiting for ['b']"


@pytest.mark.parametrize("heard", [False, True])
def test_a_trainer_that_never_comes_to_load_its_state_is_ended(heard: bool) -> None:
    """It answers what it holds, but its script may hang; once it tells of the world it doesn't."""
    bench = Bench()
    bench.say("ready")
    bench.answer(a=holds(point_of(3)), b=holds(None), c=holds(point_of(3)))
    (_, form), *_ = bench.sent(Form)
    for node in (A, C):
        bench.driver.hear(node, Ready(JOB, form.world.generation))
    if heard:
        bench.progress(form.world, 3, B)
    bench.pass_time(bench.ctx.timing.load_seconds)
    assert bench.phase == "freezing"
    assert [node for node, _ in bench.sent(Hung)] == ([] if heard else [B])


def test_a_newcomer_that_cannot_take_the_state_is_left_out_for_a_while() -> None:
    bench = Bench()
    bench.say("ready")
    bench.answer(a=holds(point_of(3)), b=holds(point_of(3)), c=holds(None))
    world = bench.driver.world
    assert world is not None
    assert world.sources[2].startswith("peer:")
    bench.driver.hear(C, fault(world, C, "state_unavailable", "nobody gave it"))
    assert not bench.office.trust.fit(C)
    assert bench.office.trust.fit(B)


@pytest.mark.parametrize(("strict", "phase"), [(False, "forming"), (True, "waiting")])
def test_a_node_that_joins_voids_a_world_that_forms_only_where_orders_may_be_refused(
    strict: bool, phase: str
) -> None:
    bench = Bench(A, B, strict=strict)
    bench.say("ready")
    bench.answer(a=holds(None), b=holds(None))
    assert bench.phase == "forming"
    bench.driver.on_view(View(Tag(2, ME, "w"), (A, B, C)), ())
    assert bench.phase == phase


def test_a_member_that_may_have_missed_its_order_voids_it() -> None:
    bench = Bench(A, B)
    bench.say("ready")
    bench.answer(a=holds(None), b=holds(None))
    bench.driver.on_view(View(Tag(2, ME, "w"), (A, B)), (), missed=(B,))
    assert bench.phase == "waiting"


def test_with_strict_partitions_most_know_of_a_world_before_it_forms() -> None:
    bench = Bench(A, B, C, most=1, strict=True)
    bench.say("ready")
    bench.answer(a=holds(None), b=holds(None), c=holds(None))
    assert [node for node, _ in bench.sent(Notice)] == [A, B, C]
    assert bench.sent(Form) == []
    world = bench.driver.world
    assert world is not None
    bench.driver.hear(B, Noted(JOB, world.generation))
    assert [node for node, _ in bench.sent(Form)] == [A]
    bench.driver.hear(C, Noted(JOB, world.generation))
    assert bench.sent(Form) == [], "it was ordered once"


# --- running --------------------------------------------------------------------------------------


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
    bench.driver.want(bench.record, frozenset({C}), frozenset())
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
