"""Members that are slower than others: told of, and left out where the job says so."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elasticd.core.words.records import World
from elasticd.core.words.worlds import Freeze, Progress
from elasticd.recovery.speed import SLOW_STEPS
from elasticd.settings.job import JobSpec

from .bench import JOB, STAMP, A, B, Bench, C, spec_of, status_of


def slow_c(drop_slow: bool, least: int = 1) -> tuple[Bench, World]:
    """Three nodes train, and ``c`` takes ten times as long for a grain, from second 60 on."""
    bench = Bench()
    spec = spec_of(least).to_dict()
    spec["recovery"] = {**spec["recovery"], "drop_slow": drop_slow}
    bench.office.balance.spec = JobSpec.from_dict(spec)
    world = bench.adopt()
    for node in bench.members:
        # Without a reducer in reserve shares stay as they are.
        bench.driver.hear(node, replace(status_of("active", world), warm=False))
    bench.ctx.now = 60.0
    for step in range(1, SLOW_STEPS + 2):
        for node in bench.members:
            pace = (1.0, 0.8) if node == C else (0.1, 0.01)
            told = Progress(
                *(JOB, world.generation, step, STAMP, step, 0.5, "compute", 1.0, 0, {}), *pace
            )
            bench.driver.hear(node, told)
        bench.ctx.now += 1.0
    return bench, world


@pytest.mark.parametrize("drop_slow", [False, True])
def test_who_is_slow_is_told_of_with_the_time_that_it_took_to_see(drop_slow: bool) -> None:
    bench, _ = slow_c(drop_slow)
    (fault,) = bench.told("fault_detected")
    assert (fault.fields["fault"], fault.fields["culprit"]) == ("slow", C)
    # Judged from the second step on: in the first the world is new to its members.
    assert fault.fields["seconds_to_detect"] == SLOW_STEPS - 1


def test_with_drop_slow_the_job_goes_on_without_the_slow_one_for_a_while() -> None:
    bench, _ = slow_c(drop_slow=True)
    (dropped,) = bench.told("node_dropped")
    assert dropped.fields["culprit"] == C and "s without c and" in dropped.reason
    assert [node for node, _ in bench.sent(Freeze)] == [A, B]
    assert not bench.office.trust.fit(C)
    bench.ctx.now += bench.ctx.timing.slow_seconds
    assert bench.office.trust.fit(C)


def test_nobody_is_left_out_unless_the_job_says_so() -> None:
    bench, _ = slow_c(drop_slow=False)
    assert not bench.told("node_dropped") and bench.office.trust.fit(C)


def test_nobody_is_left_out_where_too_few_would_stay() -> None:
    bench, _ = slow_c(drop_slow=True, least=3)
    assert not bench.told("node_dropped") and bench.office.trust.fit(C)
