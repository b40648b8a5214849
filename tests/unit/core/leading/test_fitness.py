"""The nodes that a job goes on without, and when each is tried again."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from elasticd.core.context import Context
from elasticd.core.leading.fitness import Fitness
from elasticd.core.words.records import JobRecord
from elasticd.recovery.fitness import LONGEST_REASON, Entries, Unfit
from elasticd.types import NodeId
from tests.unit.core.leading.bench import JOB, ME, A, B, C, spec_of
from tests.unit.core.leading.outbox import told


@pytest.fixture
def fitness() -> Fitness:
    return Fitness(Context(ME, lambda: "0000", now=50.0), JOB, ())


def leave_out(
    fitness: Fitness, node: NodeId, step: int = 0, looping: bool = False, unlike: bool = False
) -> None:
    fitness.leave_out(Unfit(node, 0, f"no dataset on {node}", step, looping, unlike))


def record(*unfit: Unfit, served: tuple[NodeId, ...] = ()) -> JobRecord:
    """What another node's table says."""
    spec = spec_of().to_dict()
    return JobRecord(JOB, 1, spec, "digest", "running", unfit=unfit, served=served)


def wait(fitness: Fitness, seconds: float) -> None:
    fitness.ctx.now += seconds
    fitness.tick()


def test_a_node_is_left_out_and_people_are_told_why(fitness: Fitness) -> None:
    leave_out(fitness, B)
    assert fitness.left_out == {B}
    (event,) = told(fitness.ctx, "node_unfit")
    assert (event.reason, event.fields) == ("no dataset on b", {"culprit": B})


def test_its_turn_rises_each_time_it_is_left_out_and_tried_again(fitness: Fitness) -> None:
    turns = [fitness.turn_of(B)]
    for _ in range(2):
        leave_out(fitness, B)
        turns.append(fitness.turn_of(B))
        fitness.try_again([B])
        turns.append(fitness.turn_of(B))
    assert turns == [0, 1, 2, 3, 4]


def test_the_reason_is_bounded(fitness: Fitness) -> None:
    fitness.leave_out(Unfit(B, 0, "x" * 10_000))
    (entry,) = fitness.entries
    assert len(entry.reason) <= LONGEST_REASON


def test_who_was_not_left_out_is_not_tried_again(fitness: Fitness) -> None:
    leave_out(fitness, B)
    fitness.try_again([A, C])
    assert fitness.left_out == {B} and not told(fitness.ctx, "node_tried_again")


def test_it_is_tried_again_by_itself_after_twice_as_long_each_time(fitness: Fitness) -> None:
    pauses, first = [], fitness.ctx.timing.unfit_seconds
    for _ in range(3):
        leave_out(fitness, B)
        due = min(fitness.deadlines())
        pauses.append(due - fitness.ctx.now)
        wait(fitness, pauses[-1] - 0.1)
        assert fitness.left_out == {B}
        wait(fitness, 0.1)
        assert fitness.left_out == frozenset()
    assert pauses == [pytest.approx(first * times) for times in (1, 2, 4)]
    assert len(told(fitness.ctx, "node_tried_again")) == 3


def test_who_would_cost_the_others_their_work_is_tried_again_when_asked_for(
    fitness: Fitness,
) -> None:
    """Of a plain job; who has not come as far as its script costs nothing."""
    fitness.costly = True
    leave_out(fitness, A)
    leave_out(fitness, B, looping=True)
    assert fitness.second_chances(5) == {A}
    assert fitness.deadlines()[1] == inf
    wait(fitness, 10 * fitness.ctx.timing.unfit_seconds)
    assert fitness.left_out == {B}
    fitness.try_again([B])
    assert fitness.left_out == frozenset()


def test_a_leader_that_finds_it_left_out_waits_from_when_it_knows(fitness: Fitness) -> None:
    fitness.recall(record(Unfit(B, 1, "no dataset")))
    assert fitness.deadlines() == [50.0 + fitness.ctx.timing.unfit_seconds, inf]


def test_an_operator_may_have_it_tried_again_at_once(fitness: Fitness) -> None:
    leave_out(fitness, B)
    fitness.recall(record(Unfit(B, 2, "no dataset")))
    assert fitness.left_out == frozenset() and len(told(fitness.ctx, "node_tried_again")) == 1


def test_what_a_record_said_before_takes_nothing_back(fitness: Fitness) -> None:
    leave_out(fitness, B)
    fitness.recall(record())
    fitness.recall(record(Unfit(B, 0, "")))
    assert fitness.left_out == {B}


def test_where_the_job_ran_is_remembered(fitness: Fitness) -> None:
    fitness.serve([A])
    fitness.recall(record(served=(C,)))
    fitness.serve([A, B])
    assert fitness.served == {A, B, C}


def test_who_stumbled_over_the_same_step_is_known(fitness: Fitness) -> None:
    leave_out(fitness, A, step=4, looping=True)
    leave_out(fitness, B, step=5, looping=True)
    leave_out(fitness, C, step=5)
    assert fitness.stumbled(5) == [B], "a was before, and c never came to the loop"


def test_a_second_chance_is_for_who_was_left_out_before_the_last_steps(fitness: Fitness) -> None:
    leave_out(fitness, A, step=4)
    leave_out(fitness, B, step=5)
    leave_out(fitness, C, step=4, unlike=True)
    assert fitness.second_chances(5) == {A, C}
    fitness.try_again([C])
    leave_out(fitness, C, step=4, unlike=True)
    assert fitness.second_chances(5) == {A}, "it would compute something else each time"


def test_why_they_were_left_out_is_kept_apart(fitness: Fitness) -> None:
    leave_out(fitness, A)
    leave_out(fitness, B, looping=True)
    leave_out(fitness, C, unlike=True)
    assert fitness.outnumbered == {A} and fitness.unlike == {C}
    fitness.try_again([A, C])
    assert not fitness.outnumbered and not fitness.unlike


def test_a_script_that_fails_is_waited_for_elsewhere_only_so_long(fitness: Fitness) -> None:
    assert fitness.may_wait()
    due = 50.0 + fitness.ctx.timing.start_seconds
    assert fitness.deadlines() == [due]
    fitness.ctx.now = due - 0.1
    assert fitness.may_wait()
    fitness.ctx.now = due
    assert not fitness.may_wait()
    fitness.knows()
    assert fitness.may_wait(), "that was about another failure"


def test_who_raises_in_the_loop_again_and_again_is_left_to_operators(fitness: Fitness) -> None:
    entries: Entries = (Unfit(B, 15, "KeyError", looping=True),)
    fitness.entries = entries
    wait(fitness, 100_000.0)
    assert fitness.left_out == {B}
    fitness.entries = (replace(entries[0], looping=False),)
    wait(fitness, 100_000.0)
    assert fitness.left_out == frozenset()
