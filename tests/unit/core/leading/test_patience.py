"""Learned deadlines, and who is charged with overstaying."""

from __future__ import annotations

from itertools import chain

import pytest

from elasticd.core.leading.patience import FLOOR_SECONDS, GROWTH, Patience
from elasticd.core.words.records import World
from elasticd.core.words.worlds import Progress
from elasticd.types import JobId, Lineage, NodeId, Stamp, Tag, WorkPhase

A, B = NodeId("a"), NodeId("b")
JOB = JobId("job")


def world(counter: int = 1, sources: tuple[str, str] = ("keep", "keep"), step: int = 0) -> World:
    shares = (((0, 4),), ((4, 8),))
    return World(
        job=JOB, generation=Tag(counter, A, "n"), epoch=Tag(1, A, "e"), lineage=Lineage("l"),
        parent=None, step=step, stamp=Stamp("s"), members=(A, B), sources=sources, hosts=("", ""),
        shares_now=shares, shares=shares, rung="start", reason="", recoveries=0, lost_steps=0,
        exact=True, checkpointed=-1, manifest=None, holders=(),
    )  # fmt: skip


def progress(phase: WorkPhase, step: int, counter: int = 1) -> Progress:
    return Progress(
        JOB, Tag(counter, A, "n"), step, Stamp("s"), step, None, phase, 1.0, 0, {}
    )  # fmt: skip


def learned(compute_seconds: float = 2.0, steps: int = 12) -> tuple[Patience, float]:
    """One that has seen some steps, and the time at which both begin the next."""
    patience, now = Patience(600.0), 0.0
    patience.enter(world())
    for step in range(steps):
        for node in (A, B):
            patience.saw(node, progress("compute", step), now)
        now += compute_seconds
        for node in (A, B):
            patience.saw(node, progress("reduce", step), now)
        now += 0.1
    for node in (A, B):
        patience.saw(node, progress("compute", steps), now)
    patience.late(now, Tag(1, A, "n"))
    return patience, now


def run(patience: Patience, start: float, seconds: float) -> list[tuple[float, NodeId, str]]:
    """Who becomes late when, if the leader looks twice a second."""
    found = []
    for tick in range(int(seconds * 2)):
        now = start + tick / 2
        for late in patience.late(now, Tag(1, A, "n")):
            found.append((now - start, late.node, late.phase))
    return found


def test_loading_and_computing_share_a_clock_and_are_told_apart() -> None:
    patience, now = learned()
    for grain in range(3):
        patience.saw(A, progress("data", 12), now + grain)
        patience.saw(A, progress("compute", 12), now + grain + 0.5)
    patience.saw(A, progress("data", 12), now + 3)
    found = run(patience, now, 100)
    assert [(node, phase) for _, node, phase in found] == [(A, "data"), (B, "compute")]
    assert found[0][0] == found[1][0], "turns between the two set no clock back"


def test_who_has_not_delivered_is_late_and_who_waits_is_not() -> None:
    patience, now = learned()
    patience.saw(A, progress("reduce", 12), now + 2)
    ((after, node, phase),) = run(patience, now, 60)
    assert (node, phase) == (B, "compute")
    assert 15 <= after <= 17, "eight times two seconds"


def test_quick_steps_have_a_floor() -> None:
    patience, now = learned(0.01)
    patience.saw(A, progress("reduce", 12), now)
    assert run(patience, now, 20) == [(FLOOR_SECONDS, B, "compute")]


def test_a_step_that_nobody_has_delivered_may_take_longer() -> None:
    patience, now = learned(0.01)
    found = run(patience, now, 20)
    assert found == [(GROWTH * FLOOR_SECONDS, node, "compute") for node in (A, B)]


def test_a_step_may_take_longer_than_any_before() -> None:
    """As samples grow, without a single false alarm."""
    patience, now = learned(0.01)
    for step in range(12, 20):
        seconds = 2.0 ** (step - 11)
        for node in (A, B):
            patience.saw(node, progress("compute", step), now)
        assert run(patience, now, seconds) == []
        now += seconds
        for node in (A, B):
            patience.saw(node, progress("reduce", step), now)


def retried(patience: Patience, now: float, counter: int) -> float:
    """A world of new trainers computes the step at which those before were overdue: from when."""
    patience.enter(world(counter, ("checkpoint", "checkpoint"), 10))
    for step in (10, 11, 12):
        for node in (A, B):
            patience.saw(node, progress("compute", step, counter), now)
        now += 0.01
    return now


def test_a_step_that_was_overstayed_has_more_time_in_each_try() -> None:
    patience, now = learned(0.01)
    allowed = []
    for counter in range(1, 7):
        found = [patience.late(now + tick, Tag(counter, A, "n")) for tick in range(1000)]
        allowed += [each.limit_seconds for each in chain(*found) if each.node == A]
        now = retried(patience, now + 1000.0, counter + 1)
    assert allowed == [16.0, 64.0, 256.0, 600.0, 600.0, 600.0]


@pytest.mark.parametrize(("seconds", "limit"), [(20.0, 320.0), (0.01, 16.0)])
def test_what_passes_in_another_try_is_learned_if_it_took_long(
    seconds: float, limit: float
) -> None:
    """Else it was a hang, and says nothing of how long steps take."""
    patience, now = learned(0.01)
    assert len(run(patience, now, 20)) == 2
    now = retried(patience, now + 20, 2) + seconds
    for node in (A, B):
        patience.saw(node, progress("reduce", 12, 2), now)
        patience.saw(node, progress("compute", 13, 2), now)
    assert patience.limit(A) == pytest.approx(limit, rel=0.01)


def test_a_new_trainer_stays_new_over_worlds_until_it_has_applied_steps() -> None:
    patience, now = learned(0.01)
    for counter in (2, 3):
        patience.enter(world(counter, ("keep", "peer:a" if counter == 2 else "keep"), 12))
        patience.saw(B, progress("compute", 12, counter), now)
        assert patience.limit(B) == 600.0
    patience.saw(B, progress("compute", 14, 3), now + 1)
    assert patience.limit(B) < 600.0


def test_nothing_is_expected_before_it_was_learned() -> None:
    patience, now = learned(steps=2)
    assert run(patience, now, 300) == []
    assert run(patience, now + 300, 310) != [], "user_code_seconds is the end of it"


def test_a_new_trainer_may_compile_though_others_were_quick() -> None:
    patience, now = learned(0.01)
    patience.enter(world(2, ("keep", "peer:a"), 12))
    patience.saw(B, progress("compute", 12, 2), now)
    patience.late(now, Tag(2, A, "n"))
    for tick in range(100):
        assert patience.late(now + tick, Tag(2, A, "n")) == []


def test_larger_shares_get_more_time() -> None:
    patience, _ = learned(2.0)
    limit = patience.limit(A)
    patience.world = World(
        **{
            name: getattr(world(), name)
            for name in World.__dataclass_fields__
            if name not in ("shares", "shares_now")
        },
        shares=(((0, 8),), ()),
        shares_now=(((0, 8),), ()),
    )
    assert patience.limit(A) == 2 * limit


def test_a_leader_that_was_away_charges_nobody_for_it() -> None:
    patience, now = learned(0.01)
    assert patience.late(now + 100, Tag(1, A, "n")) == []
    assert run(patience, now + 100, 3) == []


def test_the_scripts_own_code_has_its_own_deadline() -> None:
    patience, now = learned(0.01)
    for node in (A, B):
        patience.saw(node, progress("user", 13), now)
    assert run(patience, now, 590) == []
    assert [node for _, node, _ in run(patience, now + 590, 20)] == [A, B]


def test_a_member_that_is_never_heard_of_is_late_as_the_scripts_own_code_is() -> None:
    patience = Patience(60.0)
    patience.enter(world())
    patience.saw(A, progress("reduce", 0), 1.0)
    assert run(patience, 0.0, 100.0) == [(60.0, B, "enter")]


def test_a_member_that_validates_has_its_time_though_another_world_is_formed() -> None:
    patience = Patience(6.0)
    patience.enter(world(0))
    for counter in (0, 1):
        for node in (A, B):
            phase: WorkPhase = "evaluate" if node == B else "reduce"
            patience.saw(node, progress(phase, 0, 0), 0.0)
        patience.enter(world(counter))
    patience.saw(A, progress("reduce", 0), 1.0)
    assert run(patience, 0.0, 100.0) == [(60.0, B, "enter")]
