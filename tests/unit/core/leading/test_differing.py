"""Members hold different states: who goes back, to what, and who is told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elasticd.checkpoints.manifest import Manifest, Stored
from elasticd.core.leading.phases.moves import Outcome
from elasticd.core.words.records import World
from elasticd.core.words.shards import Digest, ShardsFailed, ShardsWritten
from elasticd.types import DivergencePolicy, Lineage, NodeId, Tag
from tests.unit.core.leading.bench import (
    JOB,
    LINE,
    STAMP,
    A,
    B,
    Bench,
    C,
    fault,
    holds,
    manifest_of,
    point_of,
    status_of,
)
from tests.unit.core.leading.bench import world_of as first_of

OTHER = Lineage("22")


def agreed(step: int, lineage: Lineage = LINE) -> Manifest:
    """A checkpoint that all members wrote alike."""
    return replace(manifest_of(step, A, B, C, lineage=lineage), agreed=True)


def training(
    *manifests: Manifest, policy: DivergencePolicy = "restore", required: bool = False
) -> Bench:
    """A world of three at whose side these checkpoints are."""
    bench = Bench()
    recovery = replace(bench.office.spec.recovery, on_divergence=policy)
    bench.office.spec = replace(bench.office.spec, recovery=recovery)
    bench.office.exactness.required = required
    world = bench.adopt(step=1)
    stored = tuple(Stored(each, (0,)) for each in manifests)
    for node in bench.members:
        bench.driver.hear(node, replace(status_of("active", world), stored=stored))
    return bench


def tell(bench: Bench, step: int, digests: str) -> None:
    """What A, B and C have, a letter each; a blank: that one hasn't told."""
    world = world_of(bench)
    for node, digest in zip((A, B, C), digests, strict=False):
        if digest == " ":
            continue
        told = Digest(JOB, world.generation, step, point_of(step).stamp, digest)
        bench.driver.hear(node, told)


def world_of(bench: Bench) -> World:
    assert bench.driver.world is not None
    return bench.driver.world


def next_world(bench: Bench, step: int) -> World:
    """After all have said that they hold that step."""
    assert bench.phase == "freezing"
    same = holds(point_of(step), world_of(bench).generation)
    bench.answer(a=same, b=same, c=same)
    return world_of(bench)


def test_all_go_back_to_the_newest_checkpoint_on_which_they_agreed() -> None:
    bench = training(agreed(5), agreed(10))
    tell(bench, 13, "xyx")
    world = next_world(bench, 14)
    assert (world.rung, world.step, set(world.sources)) == ("restore", 10, {"checkpoint"})
    assert world.lineage != LINE and world.parent == point_of(10)
    (fault,) = bench.told("fault_detected")
    assert fault.fields["culprit"] == B
    assert fault.reason.endswith("; all go back to what they agreed on after step 10")
    assert world.exact and not bench.told("exact_lost")


def test_an_announced_checkpoint_counts_no_more_if_an_odd_one_may_have_added_to_it() -> None:
    """B did not write step 10, so its state was compared with nobody's."""
    bench = training(agreed(5), manifest_of(10, A, C))
    assert bench.office.newest is not None and bench.office.newest.step == 10
    tell(bench, 13, "xyx")
    assert bench.office.newest.step == 5
    assert next_world(bench, 14).step == 5


def test_it_counts_if_all_agreed_later() -> None:
    bench = training(agreed(5), manifest_of(10, A, C))
    tell(bench, 12, "xxx")
    tell(bench, 14, "xyx")
    assert next_world(bench, 14).step == 10


def test_what_was_agreed_at_the_step_that_differs_does_not_count() -> None:
    bench = training(agreed(5), agreed(10))
    tell(bench, 10, "xyx")
    assert next_world(bench, 10).step == 5


def test_without_a_majority_they_go_back_as_far() -> None:
    bench = training(agreed(5), manifest_of(10, A, C))
    tell(bench, 13, "xyz")
    assert next_world(bench, 14).step == 5
    assert {e.fields["culprit"] for e in bench.told("fault_detected")} == {A, B, C}


def test_a_split_that_comes_back_behind_each_restore_ends_the_job() -> None:
    bench = training(agreed(5))
    for step in (13, 12):
        tell(bench, step, "xyz")
        assert next_world(bench, 14).step == 5
        assert bench.driver.end is None
        bench.form()
    world = world_of(bench)
    for node, model in ((A, "x"), (B, "y")):
        wrote(bench, node, model, 10, (("model/w", "same"), ("model/x", model)))
    tell(bench, 13, "xyz")
    end = bench.driver.end
    assert isinstance(end, Outcome) and end.state == "failed"
    assert "parameters differ after step 13, no majority: a x, b y, c z; the first" in end.reason
    ranks = [world.members.index(node) for node in (A, B)]
    assert f"'model/x', of rank {ranks[0]} (a) and rank {ranks[1]} (b)" in end.reason
    assert "It has come back behind each restore" in end.reason


def test_what_one_tells_again_of_a_state_that_all_took_from_it_is_no_split() -> None:
    """It had told that before: its memory may have changed since."""
    bench = training()
    tell(bench, 1, "xyz")
    same = holds(point_of(1), world_of(bench).generation)
    bench.answer(a=same, b=same, c=same)
    bench.pass_time(bench.ctx.timing.restore_seconds)
    bench.answer(a=same, b=same, c=same)
    world = bench.form()
    assert bench.told("state_chosen") and list(world.sources).count("keep") == 1
    bench.say("active", world)
    tell(bench, 1, "xyy")
    assert bench.phase == "running"
    tell(bench, 2, "xyz")
    assert bench.phase == "freezing", "what follows is compared"


def parted(*later: NodeId, diverged: tuple[tuple[NodeId, int], ...] = ()) -> Bench:
    """Of a world of three these have kept their states in a newer one, whose ring has broken. All
    meet under one leader, who asks what they hold."""
    bench = Bench()
    first, stored = first_of(A, B, C), (Stored(agreed(5), (0,)),)
    newer = replace(first_of(*later), generation=Tag(7, A, "x"), diverged=diverged)
    for node in bench.members:
        mine = newer if node in later else first
        bench.driver.hear(node, replace(status_of("active", mine), stored=stored))
    bench.driver.hear(A, fault(newer, A, "reducer_gone"))
    assert bench.phase == "freezing"
    return bench


def tell_as_of(bench: Bench, counter: int, node: NodeId, model: str, thing: str = "") -> None:
    parts = (("model", model), ("run.track('seen', …)", thing)) if thing else ()
    told = Digest(JOB, Tag(counter, A, "x"), 13, point_of(13).stamp, model + thing, parts)
    bench.driver.hear(node, told)


def meet(bench: Bench, **counters: int) -> None:
    """All hold the same step, each since the world of that number."""
    same = {n: holds(point_of(14), Tag(c, A, "x")) for n, c in counters.items()}
    bench.answer(**same)


def test_what_two_told_in_different_worlds_is_compared_before_the_next_one() -> None:
    """The leader has what both told: nobody waits until they have told it again."""
    bench = parted(A)
    for counter, node, model in ((7, A, "x"), (2, B, "y"), (2, C, "x")):
        tell_as_of(bench, counter, node, model)
    meet(bench, a=7, b=2, c=2)
    made = world_of(bench)
    assert (made.rung, made.step) == ("restore", 5)
    assert [e.fields["culprit"] for e in bench.told("fault_detected")].count(B) == 1
    assert dict(made.diverged) == {B: 1}


def test_what_one_told_before_it_took_anothers_state_is_not() -> None:
    bench = parted(A, B)
    for counter, node, model in ((7, A, "x"), (2, B, "y"), (2, C, "x")):
        tell_as_of(bench, counter, node, model)
    meet(bench, a=7, b=7, c=2)
    made = world_of(bench)
    assert (made.rung, made.step) == ("retry", 14) and not made.diverged


def test_what_a_newer_world_knows_of_one_that_it_has_left_counts_once() -> None:
    """It would be left out for good, having computed wrongly once."""
    bench = parted(A, C, diverged=((B, 1),))
    for counter, node, model in ((7, A, "x"), (2, B, "y"), (7, C, "x")):
        tell_as_of(bench, counter, node, model)
    meet(bench, a=7, b=2, c=7)
    assert dict(world_of(bench).diverged) == {B: 1} and not bench.told("node_quarantined")


def test_what_a_script_keeps_by_rank_is_named_for_all_who_told_of_it() -> None:
    bench = parted(A)
    for counter, node, thing in ((7, A, "x"), (2, B, "y")):
        tell_as_of(bench, counter, node, "m", thing)
    meet(bench, a=7, b=2, c=2)
    end = bench.driver.end
    assert isinstance(end, Outcome) and end.state == "failed"
    assert "after step 13: rank 0 (a) has x, b has y. " in end.reason


def test_one_behind_which_all_agreed_is_another() -> None:
    bench = training(agreed(5))
    for step in (13, 12, 14, 18):
        tell(bench, step, "xyz")
        assert next_world(bench, 20).step == 5
        bench.form()
        tell(bench, step + 1, "xxx")
        assert bench.driver.end is None


def test_a_job_may_want_to_go_on_and_is_told_since_when_it_is_not_exact() -> None:
    bench = training(agreed(5), agreed(10), policy="continue")
    tell(bench, 13, "xyx")
    world = next_world(bench, 14)
    assert (world.rung, world.step, world.exact) == ("regroup", 14, False)
    assert dict(zip(world.members, world.sources, strict=True))[B].startswith("peer:")
    (lost,) = bench.told("exact_lost")
    assert "rank 1 (b) computes wrongly, or what the script does depends on the rank" in lost.reason
    assert "the majority goes on" in lost.reason and lost.reason.endswith("since step 10")
    assert bench.driver.summary()["exact_reason"] == lost.reason


def test_if_one_of_the_majority_then_tells_otherwise_the_rest_of_it_is_asked_who_is_right() -> None:
    bench = training(agreed(5), agreed(10), policy="continue")
    tell(bench, 13, "xyx")
    assert bench.phase == "freezing"
    told = Digest(JOB, world_of(bench).generation, 13, point_of(13).stamp, "y")
    bench.driver.hear(C, told)
    world = next_world(bench, 14)
    assert (world.rung, world.step) == ("restore", 10), "A and C differ, and nobody is right"


def test_if_two_of_the_majority_differ_after_a_later_step_all_go_back() -> None:
    """Whether it is told before they are found to be the majority, or then."""
    for early in (True, False):
        bench = training(agreed(5), agreed(10), policy="continue")
        if early:
            tell(bench, 14, "x")
        tell(bench, 13, "xyx")
        assert bench.phase == "freezing"
        tell(bench, 14, "x z")
        world = next_world(bench, 14)
        assert (world.rung, world.step) == ("restore", 10), "A and C differ, and nobody is right"


def test_so_does_one_without_a_checkpoint_to_go_back_to() -> None:
    bench = training()
    tell(bench, 13, "xyx")
    world = next_world(bench, 14)
    assert (world.rung, world.step, world.exact) == ("regroup", 14, False)
    (lost,) = bench.told("exact_lost")
    assert lost.reason.endswith("since the start")


def test_a_job_that_requires_exactness_fails_rather_than_go_on_so() -> None:
    bench = training(agreed(5), policy="continue", required=True)
    tell(bench, 13, "xyx")
    same = holds(point_of(14), world_of(bench).generation)
    bench.answer(a=same, b=same, c=same)
    end = bench.driver.end
    assert isinstance(end, Outcome) and end.state == "failed"
    assert "since step 5" in end.reason


@pytest.mark.parametrize(
    ("began", "exact"), [((0, 9, 0), False), ((0, 9, 9), True), ((0, 0, 9), True)]
)
def test_who_differs_again_and_began_like_nobody_may_be_right(
    began: tuple[int, ...], exact: bool
) -> None:
    """Those who stay keep what the script has outside of its state, and it is not taken back."""
    bench = training(agreed(5))
    bench.office.trust.quarantine(B)
    for node, step in zip((A, B, C), began, strict=True):
        status = status_of("active", world_of(bench))
        assert status.trainer is not None
        status = replace(status, trainer=replace(status.trainer, began=step))
        bench.driver.hear(node, replace(status, stored=(Stored(agreed(5), (0,)),)))
    tell(bench, 13, "xyx")
    world = next_world(bench, 14)
    assert (world.step, world.exact) == (5, exact)
    reasons = [event.reason for event in bench.told("exact_lost")]
    assert all("outside of run.state" in reason and "to step 5" in reason for reason in reasons)
    assert len(reasons) == 1 - exact


@pytest.mark.parametrize("policy", ["restore", "continue"])
@pytest.mark.parametrize("digests", ["xyx", "xyz"])
def test_where_probes_differ_all_take_one_members_state(
    policy: DivergencePolicy, digests: str
) -> None:
    bench = training(agreed(5), policy=policy)
    bench.office.exactness.lose("updates differ between a and b")
    for step in (13, 16, 19):
        tell(bench, step, digests)
        world = next_world(bench, step + 1)
        assert (world.step, world.sources) == (step + 1, ("keep", "peer:a", "peer:a"))
        assert world.stores and "all take the state of one" in world.reason
        bench.form()
    assert len(bench.told("exact_lost")) == 1 and not bench.told("fault_detected")
    assert bench.office.trust.quarantined == [] and bench.office.account.recoveries == 0


def of_chips(bench: Bench, *chips: str) -> None:
    for node, chip in zip((A, B, C), chips, strict=True):
        bench.driver.hear(node, replace(bench.office.statuses[node], chip=chip))


@pytest.mark.parametrize(("chips", "blamed"), [(("M1", "M3", "M1"), False), (("M1",) * 3, True)])
def test_chips_are_known_before_probes_show_it(chips: tuple[str, ...], blamed: bool) -> None:
    bench = training(agreed(5))
    of_chips(bench, *chips)
    tell(bench, 13, "xyx")
    world = next_world(bench, 14)
    assert world.step == (5 if blamed else 14)
    said = [event.reason for event in bench.told("exact_lost")]
    assert said == ([] if blamed else ["updates differ between a (M1) and b (M3)"])
    assert bool(bench.told("fault_detected")) == blamed


def test_a_job_that_requires_its_bits_ends_where_chips_differ() -> None:
    bench = training(agreed(5), required=True)
    of_chips(bench, "M1", "M3", "M1")
    tell(bench, 13, "xyx")
    same = holds(point_of(14), world_of(bench).generation)
    bench.answer(a=same, b=same, c=same)
    assert isinstance(bench.driver.stage.end, Outcome)
    assert "(M3)" in bench.driver.stage.end.reason


def test_nor_where_somebody_has_ended_with_the_last_state() -> None:
    bench = training(agreed(5))
    bench.office.course.release(A)
    tell(bench, 13, "xyx")
    assert bench.told("exact_lost")


def test_what_was_left_is_not_restored_when_the_next_world_breaks() -> None:
    bench = training(agreed(5), manifest_of(10, A, C))
    tell(bench, 13, "xyx")
    next_world(bench, 14)
    again = bench.form()
    bench.driver.hear(A, status_of("ready"))
    assert again.step == 5
    assert bench.office.newest is not None and bench.office.newest.step == 5


def test_if_what_they_agreed_on_is_lost_they_take_what_there_is_and_tell() -> None:
    bench = training(agreed(5), manifest_of(10, A, C))
    tell(bench, 13, "xyx")
    nothing, world = holds(None), world_of(bench)
    for node in bench.members:
        stored = (Stored(manifest_of(10, A, C), (0,)),)
        bench.driver.hear(node, replace(status_of("ready"), stored=stored))
    for seconds in (0.0, bench.ctx.timing.restore_seconds):
        bench.pass_time(seconds)
        bench.answer(a=nothing, b=nothing, c=nothing)
    assert (world_of(bench).step, world_of(bench).exact) == (10, False)
    assert world_of(bench).generation > world.generation
    (lost,) = bench.told("exact_lost")
    assert "all go back to step 10" in lost.reason


def wrote(
    bench: Bench,
    node: NodeId,
    model: str,
    step: int = 100,
    tensors: tuple[tuple[str, str], ...] = (),
) -> None:
    rows = ((0, 100, model * 64),)
    world = world_of(bench)
    state = (JOB, world.generation, world.lineage, step, STAMP, 1)
    told = ShardsWritten(*state, rows, model, 0.1, 0.2, check=model, tensors=(tensors,))
    bench.driver.hear(node, told)


def test_the_last_state_is_not_waited_for_if_who_wrote_it_differ_and_the_rest_cant() -> None:
    bench = training(agreed(5))
    wrote(bench, A, "a")
    wrote(bench, B, "b")
    assert bench.phase == "running", "C may tell who is right"
    state = (JOB, world_of(bench).generation, LINE, 100, STAMP, 1)
    bench.driver.hear(C, ShardsFailed(*state, "the disk is full", True))
    bench.driver.tick()
    assert next_world(bench, 100).step == 5


def test_most_writers_do_not_decide_where_all_go_back() -> None:
    """C's state differs, and its sums are in that of the others."""
    bench = training(agreed(5))
    for node, model in ((A, "a"), (C, "c"), (B, "a")):
        wrote(bench, node, model, step=10)
    assert bench.phase == "freezing" and not bench.office.checkpoints.open
    assert next_world(bench, 10).step == 5


def test_the_last_state_is_not_waited_for_if_it_lacks_what_a_doubted_writer_has() -> None:
    """B's disk is full, so that nobody could compare all three. C was found out at an earlier
    checkpoint: its shard counts no more, and no one else has it."""
    bench = training(agreed(5), policy="continue")
    world = world_of(bench)
    bench.office.checkpoints.doubt((C,), world.generation)
    state = (JOB, world.generation, LINE, 100, STAMP, 2)
    for node, shard, model in ((A, 0, "a"), (C, 1, "c")):
        rows = ((shard, 100, model * 64),)
        written = ShardsWritten(*state, rows, model, 0.1, 0.2, check=model, tensors=((),))
        bench.driver.hear(node, written)
    bench.driver.hear(B, ShardsFailed(*state, "the disk is full", True))
    bench.driver.tick()
    following = next_world(bench, 100)
    assert following.step == 100
    assert following.sources[following.members.index(C)].startswith("peer:")
    (fault,) = bench.told("fault_detected")
    assert fault.fields["culprit"] == C


def tell_parts(bench: Bench, step: int, models: str, things: str) -> None:
    """What A, B and C have of the model, and of a thing that the script tracks."""
    world = world_of(bench)
    for node, model, thing in zip((A, B, C), models, things, strict=True):
        state = (JOB, world.generation, step, point_of(step).stamp)
        parts = (("model", model), ("run.track('seen', …)", thing))
        bench.driver.hear(node, Digest(*state, model + thing, parts))


@pytest.mark.parametrize("things", ["xyx", "xyz"])
@pytest.mark.parametrize("policy", ["restore", "continue"])
def test_what_the_script_makes_otherwise_on_each_rank_ends_the_job_and_is_named(
    things: str, policy: DivergencePolicy
) -> None:
    bench = training(agreed(5), policy=policy)
    world = world_of(bench)
    tell_parts(bench, 10, "mmm", things)
    end = bench.driver.end
    assert isinstance(end, Outcome) and end.state == "failed"
    assert end.reason.startswith("run.track('seen', …) differs between ranks after step 10: ")
    for node, thing in zip((A, B, C), things, strict=True):
        assert f"rank {world.members.index(node)} ({node}) has {thing}" in end.reason
    assert "per_rank=True" in end.reason
    (event,) = bench.told("state_differs")
    assert (event.reason, event.fields["step"]) == (end.reason, 10)
    assert not bench.told("fault_detected")


def test_where_models_differ_too_a_member_has_diverged() -> None:
    bench = training(agreed(5))
    tell_parts(bench, 10, "mnm", "xyx")
    assert next_world(bench, 10).step == 5
    assert bench.told("fault_detected") and not bench.told("state_differs")


def test_writers_who_differ_in_what_is_tracked_are_no_divergence() -> None:
    bench = training(agreed(5))
    world = world_of(bench)
    for node, thing in ((A, "a"), (B, "b"), (C, "c")):
        assert bench.driver.end is None
        state = (JOB, world.generation, world.lineage, 10, STAMP, 1)
        parts = (("model", "m"), ("run.state.x", thing))
        rows = ((0, 100, thing * 64),)
        bench.driver.hear(
            node, ShardsWritten(*state, rows, "m", 0.1, 0.2, check=thing, parts=parts)
        )
    end = bench.driver.end
    assert isinstance(end, Outcome) and "run.state.x differs" in end.reason
    assert not bench.told("fault_detected")
    assert 10 not in [event.fields["step"] for event in bench.told("checkpoint_committed")]
