"""A new leader finds out what an earlier one has left."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elasticd.checkpoints.manifest import Stored
from elasticd.core.jobs.nodes import ALL_ALIKE
from elasticd.core.leading.account import FRUITLESS_LIMIT
from elasticd.core.words.records import World
from elasticd.core.words.worlds import Formed, Freeze
from elasticd.recovery.poison import Try
from elasticd.types import NodeId, Tag, TrainerPhase
from tests.unit.core.leading.bench import (
    GENERATION,
    JOB,
    A,
    B,
    Bench,
    C,
    fault,
    manifest_of,
    status_of,
    world_of,
)

AFTER = Tag(GENERATION.counter + 1, A, "y")
"""A world behind the usual one."""


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
    tried = Try(21, Tag(1, A, "x"), "signal 9", 0.0, None, (), ((A, False),))
    again = replace(tried, generation=GENERATION)
    world = replace(world_of(A, B, C), tried=(tried, again), fruitless=FRUITLESS_LIMIT + 1)
    bench = Bench(rested=str(world.generation), step=20)
    phases: dict[NodeId, TrainerPhase] = {A: "ready", B: "starting", C: "starting"}
    for node, phase in phases.items():
        bench.driver.hear(node, replace(status_of(phase, world), ready=False))
    assert (bench.phase, bench.why) == ("waiting", "trainers are starting on b, c")
    assert bench.driver.committed == 20
    assert bench.office.account.resumes
    bench.say("ready", world)
    ladder = bench.office.trust.ladder
    assert not ladder.tries and not bench.office.account.fruitless, "it may have been mended"


@pytest.mark.parametrize("known", [world_of(A, B, C, step=5), None], ids=["older", "none"])
def test_so_does_one_that_rested_in_a_world_in_which_nobody_here_was(known: World | None) -> None:
    """They know a world from before it, or none at all."""
    bench = Bench(A, B, rested=str(AFTER), step=20)
    bench.driver.want(bench.record, frozenset({C}), ALL_ALIKE)
    bench.say("ready", known)
    assert bench.driver.committed == 20 and bench.office.account.resumes


def test_where_it_has_gone_on_since_it_rested_that_counts_no_more() -> None:
    bench = Bench(rested=str(GENERATION), step=20)
    bench.say("ready", world_of(A, B, C, generation=AFTER, step=5))
    assert bench.driver.committed == 5 and not bench.office.account.resumes
    bench = Bench(rested=str(GENERATION), step=20)
    bench.ctx.heard[JOB] = AFTER
    bench.say("ready")
    assert not bench.office.account.resumes, "nobody here was in that world"


def test_an_older_state_than_that_in_which_it_rested_is_told_as_lost_steps() -> None:
    bench = Bench(A, B, rested=str(AFTER), step=20)
    bench.driver.want(bench.record, frozenset({C}), ALL_ALIKE)
    stored = Stored(manifest_of(12, A, B), (0,))
    for node in (A, B):
        bench.driver.hear(node, replace(status_of("ready"), stored=(stored,)))
    bench.hold_nothing()
    assert bench.why == "step 20, at which the job came to rest, may be on c"
    bench.pass_time(bench.ctx.timing.restore_seconds)
    bench.hold_nothing()
    assert bench.phase == "forming" and bench.office.world is not None
    assert (bench.office.world.step, bench.office.world.lost_steps) == (12, 8)
    assert bench.office.account.recovery is not None, "told when it has succeeded"


def test_copies_of_a_world_on_nodes_of_an_older_release_are_of_the_same_world() -> None:
    """What such a release doesn't know is lost there."""
    tried = (Try(31, Tag(1, A, "x"), "signal 9", 0.0, None, (), ((A, False),)),)
    full = replace(world_of(A, B, C, step=20), tried=tried, fruitless=3, furthest=40)
    old = replace(full, tried=(), fruitless=0, furthest=0)
    for worlds in ({A: full, B: old, C: old}, {A: old, B: old, C: full}):
        bench = Bench()
        for node, world in worlds.items():
            told = replace(status_of("active", world, committed=25), ready=node != B)
            bench.driver.hear(node, replace(told, committed=30 if node == B else 25))
        account, ladder = bench.office.account, bench.office.trust.ladder
        assert bench.driver.committed == 30
        assert (account.fruitless, account.furthest, [*ladder.tries]) == (3, 40, [31])
