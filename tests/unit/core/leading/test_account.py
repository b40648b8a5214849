"""The leader's account of faults and recoveries, and whom it trusts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from elasticd.core.context import Context
from elasticd.core.leading.account import FRUITLESS_LIMIT, Account
from elasticd.core.leading.trust import Trust
from elasticd.core.words.effects import Emit
from elasticd.recovery.faults import Evidence
from elasticd.recovery.restore import Resume
from elasticd.types import JobId, Lineage, NodeId, Point, Rung, Stamp
from tests.unit.core.taking_part.test_member_faults import EMPTY

A, B = NodeId("a"), NodeId("b")
JOB = JobId("job-1")


def account(now: float = 50.0) -> Account:
    return Account(Context(A, lambda: "n", now=now, wall=1000.0), JOB)


def emitted(made: Account, kind: str) -> dict[str, Any]:
    (event,) = [f for f in made.ctx.effects if isinstance(f, Emit) and f.kind == kind]
    return event.fields


def recovered(made: Account, rung: Rung, step: int, committed: int) -> dict[str, Any]:
    made.close(replace(EMPTY, rung=rung, step=step), committed)
    return emitted(made, "recovery_finished")


def test_a_recovery_is_named_after_its_dearest_rung() -> None:
    made = account()
    made.add(Evidence(B, "worker_exit", "it ended", 49.0), committed=9)
    made.count()
    made.planned("regroup", 9, 0)
    made.planned("retry", 9, 0)
    assert recovered(made, "retry", 9, 10)["rung"] == "regroup"


def test_what_ends_the_job_is_no_recovery() -> None:
    """Unless a world was planned for it."""
    made = account()
    made.add(Evidence(B, "worker_exit", "it ended", 49.0), committed=9)
    made.count()
    made.planned("retry", 9, 0)
    made.given_up()
    assert made.recoveries == 1
    recovered(made, "retry", 9, 10)
    made.add(Evidence(B, "worker_exit", "it ended again", 50.0), committed=10)
    made.given_up()
    assert made.recoveries == 1, "it broke nothing"
    made.count()
    assert made.recoveries == 2
    made.given_up()
    made.given_up()
    assert made.recoveries == 1


@pytest.mark.parametrize("rung", ["rescue", "restore"])
def test_what_a_rescue_or_a_restore_gives_up_is_counted(rung: Rung) -> None:
    made = account()
    made.add(Evidence(B, "peer_lost", "it left", 49.0), committed=9)
    made.count()
    made.planned(rung, 6, 3)
    told = recovered(made, rung, 6, 7)
    assert (told["lost_steps"], made.lost_steps) == (3, 3)


def test_what_is_given_up_is_counted_once_whatever_is_planned_for_it() -> None:
    made = account()
    made.add(Evidence(B, "divergence", "it differs", 49.0), committed=8)
    made.count()
    made.planned("restore", 6, 3)  # a step more was committed before the plan
    made.planned("restore", 6, 3)  # the first world never formed
    made.planned("restore", 4, 5)
    told = recovered(made, "restore", 4, 5)
    assert (told["lost_steps"], made.lost_steps) == (5, 5)


def test_a_fault_says_when_its_first_sign_was_seen() -> None:
    made = account(now=50.0)
    made.add(Evidence(B, "hang", "stopped", 47.5), committed=9)
    made.ctx.now, made.ctx.wall = 51.0, 1001.0
    made.diagnose(Resume(Point(Lineage("l"), 9, Stamp("s")), (A,), ("keep",), "why"), None)
    told = emitted(made, "fault_detected")
    assert told["evidence_time"] == pytest.approx(997.5)
    assert told["detected_time"] == pytest.approx(1000.0)
    assert told["seconds_to_detect"] == pytest.approx(2.5)


def test_steps_that_are_done_again_are_no_progress() -> None:
    made = account()
    made.furthest, made.fruitless = 9, 3
    made.close(replace(EMPTY, step=6), 7)
    assert made.fruitless == 3
    made.close(replace(EMPTY, step=6), 10)
    assert made.fruitless == 0


def test_where_nobody_knows_how_far_it_had_come_many_steps_are_progress() -> None:
    """Checkpoints may be rare."""
    made = account()
    made.adopt(replace(EMPTY, fruitless=3, furthest=100))
    made.found(100, 100, unsure=True)
    made.close(EMPTY, 164, 100)
    assert made.fruitless == 3
    made.close(EMPTY, 165, 100)
    assert (made.fruitless, made.furthest) == (0, 165)
    made.planned_in_vain()
    made.close(EMPTY, 166, 100)
    assert made.fruitless == 0, "from there on it is known"


def rests(made: Account) -> int:
    """How tired it is; then it rests."""
    tired = made.tired
    if tired:
        made.rest()
    return tired


def test_a_job_rests_once_for_each_recovery_too_many() -> None:
    made = account()
    made.fruitless = FRUITLESS_LIMIT
    assert rests(made) == 0
    made.fruitless += 1
    assert [rests(made), rests(made)] == [1, 0]
    made.fruitless += 1
    assert [rests(made), rests(made)] == [2, 0]
    made.close(EMPTY, 1)
    assert rests(made) == 0


def test_a_job_rests_under_later_leaders_too_until_it_is_paused_and_resumed() -> None:
    made = account()
    made.adopt(replace(EMPTY, fruitless=FRUITLESS_LIMIT + 1, furthest=9))
    made.close(EMPTY, 9)
    assert rests(made) == 1
    later = account()
    later.adopt(replace(EMPTY, fruitless=FRUITLESS_LIMIT + 1))
    later.resume()
    assert rests(later) == 0


def test_a_node_that_is_not_let_in_is_told_with_the_reason() -> None:
    ctx = account().ctx
    Trust(ctx, JOB).bench(B, "it was prepared for too long")
    (event,) = [effect for effect in ctx.effects if isinstance(effect, Emit)]
    assert (event.kind, event.fields["culprit"]) == ("node_benched", B)
    assert event.reason.endswith("s: it was prepared for too long")


def test_a_quarantine_outlives_its_leader() -> None:
    first, second = (Trust(Context(n, lambda: "n", now=5.0), JOB) for n in (A, B))
    first.quarantine(B)
    assert first.fit(B), "once may be bad luck"
    first.quarantine(B)
    assert not first.fit(B) and first.quarantined == [B]
    second.adopt(replace(EMPTY, diverged=tuple(first.diverged.items())))
    assert not second.fit(B) and second.quarantined == [B]
