"""Each thing is told once, by one node, whoever dies."""

from __future__ import annotations

from typing import Any

import pytest

from elasticd.core.jobs.notices import AGE_SECONDS, SETTLE_SECONDS, Around, NoticeBook
from elasticd.types import NodeId

A, B, C = NodeId("a"), NodeId("b"), NodeId("c")
ALL = ("job_finished", "job_failed", "parked", "node_lost")


def event(kind: str, time: float = 100.0, **more: Any) -> dict[str, Any]:
    return {"kind": kind, "time": time, "job": "j-1-aaaa", "node": "a", "reason": "why"} | more


def book(*events: dict[str, Any]) -> NoticeBook:
    made = NoticeBook()
    for each in events:
        made.see(each, each["time"])
    return made


def tellers(made: NoticeBook, *able: NodeId, leader: NodeId | None = A, now: float = 110.0) -> str:
    """Which of the nodes that are there would tell, once for each notice."""
    told = dict.fromkeys(able, ALL)
    return "".join(each for each in able for _ in made.mine(Around(each, leader, told), now))


@pytest.mark.parametrize("kind", ["job_finished", "job_failed", "job_parked", "node_lost"])
def test_the_leader_tells_or_else_the_first_that_can(kind: str) -> None:
    assert tellers(book(event(kind)), A, B, C, leader=C) == "c"
    assert tellers(book(event(kind)), B, C, leader=A) == "b"
    assert tellers(book(event("job_submitted")), A, B) == ""


def test_only_who_tells_of_that() -> None:
    made, told = book(event("job_failed")), {A: ("parked",), B: ("job_failed",)}
    assert not list(made.mine(Around(A, A, told), 110.0))
    (notice,) = made.mine(Around(B, A, told), 110.0)
    assert notice.sentence == "j-1-aaaa has failed: why" and notice.job == "j-1-aaaa"


def test_of_what_a_script_has_printed_the_last_line_is_told() -> None:
    why = "the script ended with exit status 1:\nTOKEN=hidden\nTraceback\nValueError: no rows\n"
    (notice,) = book(event("job_failed", reason=why)).mine(Around(A, A, {A: ALL}), 110.0)
    said = "the script ended with exit status 1: … ValueError: no rows"
    assert notice.sentence == f"j-1-aaaa has failed: {said}"


def test_who_has_begun_goes_on_while_it_is_there() -> None:
    begun = event("notifying", 101.0, node="b", notice="job_failed/j-1-aaaa")
    made = book(event("job_failed"), begun)
    assert tellers(made, A, B) == "b", "another node would tell it again"
    assert tellers(made, A, C) == "a", "it has died, and may not have told it"
    made.see(begun | {"kind": "notified"}, 102.0)
    assert tellers(made, A, B) == "" and not made.waits(103.0)


def test_who_can_not_leaves_it_to_the_next() -> None:
    made = book(event("job_failed"), event("notify_failed", node="a", notice="job_failed/j-1-aaaa"))
    assert tellers(made, A, B) == "b"
    assert tellers(made, A) == ""


def test_who_does_not_lead_waits_until_it_has_heard_the_others() -> None:
    made = book(event("job_failed"))
    soon = 100.0 + SETTLE_SECONDS / 2
    assert tellers(made, B, leader=A, now=soon) == ""
    assert tellers(made, A, B, now=soon) == "a"


def test_nothing_old_is_told() -> None:
    made = book(event("job_failed"))
    assert tellers(made, A, now=101.0 + AGE_SECONDS) == "" and not made.waits(101.0 + AGE_SECONDS)


@pytest.mark.parametrize("clock", [-86_400.0, 86_400.0])
def test_the_clock_of_who_says_so_may_be_wrong(clock: float) -> None:
    made, fresh = NoticeBook(), event("job_failed", 100.0 + clock)
    made.see(fresh, 100.0)
    assert tellers(made, A, now=99.0 + AGE_SECONDS) == "a"
    assert tellers(made, A, now=101.0 + AGE_SECONDS) == ""


def test_what_was_read_late_is_as_old_as_it_is_said_to_be() -> None:
    made = NoticeBook()
    made.see(event("job_failed"), 100.0, ago=AGE_SECONDS - 5.0)
    assert tellers(made, A, now=104.0) == "a" and tellers(made, A, now=106.0) == ""


def test_two_leaders_that_say_a_job_waits_are_told_of_once() -> None:
    made = book(event("job_parked"), event("job_parked", 101.0, node="b"))
    assert tellers(made, A) == "a"
    made.see(event("notified", notice="parked/j-1-aaaa/0"), 102.0)
    made.see(event("world_formed", 103.0, generation=2), 103.0)
    assert tellers(made, A) == ""
    made.see(event("job_parked", 104.0), 104.0)
    assert tellers(made, A) == "a", "it has trained in between"


def test_a_node_that_was_back_is_lost_again() -> None:
    made = book(
        event("node_lost", node="c", job=None), event("node_lost", 101.0, node="c", job=None)
    )
    assert tellers(made, A) == "a", "one view told that it went, another why"
    made.see(event("node_joined", 102.0, node="c", job=None), 102.0)
    made.see(event("node_lost", 103.0, node="c", job=None), 103.0)
    assert tellers(made, A) == "aa"


def test_what_is_kept_is_bounded() -> None:
    made = NoticeBook()
    for number in range(1500):
        made.see(event("job_failed", job=f"j-{number}-aaaa"), 100.0)
    around = Around(A, A, {A: ALL})
    kept = [notice.job for notice in made.mine(around, 100.0)]
    assert len(kept) == 1000 and kept[-1] == "j-1499-aaaa"
