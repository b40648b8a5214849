"""Whose turn it is: the decision alone, and its reason."""

from __future__ import annotations

from dataclasses import replace

from elasticd.core.leading.turns import NodesThere, Stall, Turns, obstacle, waits_for
from elasticd.core.words.records import JobRecord
from elasticd.recovery.fitness import Unfit
from elasticd.types import JobId, NodeId

A, B, C = (NodeId(name) for name in "abc")
ALL = NodesThere((A, B, C))


def job(number: int, least: int = 1, state: str = "queued") -> JobRecord:
    spec = {"job": {"name": "job"}, "world": {"min": least}}
    record = JobRecord(JobId(f"job-{number}"), number, spec, "", "queued")
    return replace(record, state="running") if state == "running" else record


def turns() -> Turns:
    return Turns(20.0, 600.0)


def stall(since: float = 100.0, costly: bool = False) -> Stall:
    return Stall(since, costly, "1 of at least 3 members are ready")


def test_what_a_job_lacks() -> None:
    assert obstacle(job(1, 3), ALL) == ""
    assert obstacle(job(1, 4), ALL) == "it needs 4 nodes and may run on 3"
    assert obstacle(job(1), NodesThere(())) == "it needs 1 node and may run on 0"
    drained = NodesThere((A, B, C), frozenset({B, C}))
    assert obstacle(job(1, 2), drained) == "it needs 2 nodes and may run on 1; drained: b, c"
    unfit = replace(job(1, 3), unfit=(Unfit(C, 1, "no dataset"),))
    assert obstacle(unfit, ALL) == "it needs 3 nodes and may run on 2; left out: c"


def test_the_first_that_can_run_has_its_turn() -> None:
    big, small, other = job(1, 4), job(2), job(3)
    assert turns().first(0.0, [big, small, other], ALL) == small
    assert turns().first(0.0, [big], ALL) == big  # it waits for its nodes
    assert turns().first(0.0, [big, small], NodesThere((A, B, C, NodeId("d")))) == big
    assert turns().first(0.0, [], ALL) is None


def test_a_turn_is_yielded_after_a_while_and_only_to_one_that_can_run() -> None:
    assert turns().yields(119.0, stall(), [job(2)], ALL) == ""
    assert turns().yields(120.0, stall(), [job(2, 9)], ALL) == ""
    assert turns().yields(120.0, None, [job(2)], ALL) == ""
    text = "it yielded its turn to job-2: 1 of at least 3 members are ready"
    assert turns().yields(120.0, stall(), [job(2)], ALL) == text


def test_steps_that_are_not_stored_keep_it_longer() -> None:
    assert turns().yields(120.0, stall(costly=True), [job(2)], ALL) == ""
    assert turns().yields(700.0, stall(costly=True), [job(2)], ALL) != ""


def test_who_came_to_nothing_is_tried_again_with_other_nodes_or_after_another_job() -> None:
    known, lost, fine = turns(), job(1), job(2)
    known.yielded(100.0, lost, ALL)
    assert known.first(200.0, [lost, fine], ALL) == fine
    assert known.yields(699.0, stall(), [lost], ALL) == ""
    assert known.first(200.0, [lost], ALL) == lost
    assert known.first(200.0, [lost, fine], NodesThere((A, B))) == lost
    assert known.first(700.0, [lost, fine], ALL) == lost, "its files may be back"
    known.forget()
    assert known.first(200.0, [lost, fine], ALL) == lost


def test_behind_whom() -> None:
    queue = [job(1, state="running"), job(2, 9), job(3), job(4)]
    assert waits_for(queue[2], queue, ALL) == "behind job-1"
    assert waits_for(queue[3], queue, ALL) == "behind job-1 and 1 more"
    text = "behind job-1; it needs 9 nodes and may run on 3"
    assert waits_for(queue[1], queue, ALL) == text
    assert waits_for(queue[2], queue[1:], ALL) == ""


def test_nodes_that_train_nothing_are_named_when_a_job_lacks_nodes() -> None:
    there = NodesThere((A, B, C), frozenset({B, C}), frozenset({C}))
    why = obstacle(job(1, 2), there)
    assert why == "it needs 2 nodes and may run on 1; drained: b; without the role train: c"
