"""Whose state a leader finds to be another's."""

from __future__ import annotations

from dataclasses import replace

from elasticd.core.context import Context
from elasticd.core.leading.comparing import ToldOfStates, without_untaken
from elasticd.core.leading.trust import Trust
from elasticd.core.words import effects as e
from elasticd.core.words.shards import Digest, PullShards, ShardsWritten
from elasticd.core.words.worlds import Form, Prepared
from elasticd.types import NO_TAG, Lineage, NodeId, Stamp, Tag
from tests.unit.core.leading.bench import (
    GENERATION,
    JOB,
    LINE,
    STAMP,
    A,
    B,
    Bench,
    C,
    fault,
    holds,
    point_of,
    status_of,
    world_of,
)
from tests.unit.core.taking_part.test_member_faults import desk


def test_late_words_of_old_states_do_not_hide_what_is_wrong_with_the_newest() -> None:
    states, world = ToldOfStates(), world_of(A, B, C)

    def tell(node: NodeId, step: int, digest: str) -> bool:
        told = Digest(JOB, GENERATION, step, Stamp(f"{step:032x}"), digest)
        states.hear(node, told)
        found = states.compare(world)
        return found is not None and found.found.odd == (A,)

    assert not tell(A, 40, "odd")
    assert not tell(B, 40, "even")
    for step in (20, 25, 30, 35):
        assert not tell(C, step, "even")
    assert tell(C, 40, "even")


def test_a_node_that_copies_shards_says_nothing_of_its_own_parameters() -> None:
    """C's trainer skipped the checkpoint, and C's daemon copied A's shards."""
    bench, made = Bench(), desk()
    bench.adopt()
    trust = bench.office.trust
    state = (JOB, GENERATION, LINE, 10, STAMP, 1)
    rows = ((0, 100, "0" * 64),)
    for node, model in ((A, "11"), (B, "22")):
        bench.driver.hear(node, ShardsWritten(*state, rows, model, 0.1, 0.2, check=model))
    order = PullShards(*state, "11", rows, ((A,),))
    made.member.on_order(order, Tag(1, A, "v"), bound=False)
    (fetch,) = [f for f in made.ctx.effects if isinstance(f, e.FetchShards)]
    bench.driver.hear(C, replace(fetch.report, job=JOB))
    assert trust.tainted == {}, "one against one is no majority"
    bench.driver.hear(C, Digest(JOB, GENERATION, 10, STAMP, "22"))
    assert set(trust.tainted) == {A}


def test_after_a_rollback_a_newcomer_keeps_what_a_later_world_gave_it() -> None:
    """It was prepared, and never in a world."""
    trust, world = Trust(Context(A, lambda: "0000"), JOB), world_of(A, B)
    trust.distrust(world)
    brought = holds(point_of(9))
    trust.lend(C, Prepared(JOB, world.generation, point_of(9)))
    assert trust.trusted(C, brought).point is None
    trust.lend(C, Prepared(JOB, Tag(world.generation.counter + 1, A, "n"), point_of(9)))
    assert trust.trusted(C, brought).point == point_of(9)


def test_the_last_word_of_a_state_counts() -> None:
    """A world that starts from it writes it again, and tells first what was told before."""
    states, world = ToldOfStates(), world_of(A, B, C)
    for node, check in ((A, "11"), (C, "11"), (C, "22"), (B, "11")):
        states.hear(node, Digest(JOB, GENERATION, 10, STAMP, check))
    found = states.compare(world)
    assert found is not None and found.found.odd == (C,)


def test_what_was_told_before_the_world_was_known_counts() -> None:
    """Members tell a new leader again of states of which no disk has to be finished."""
    bench = Bench()
    for node, check in ((A, "11"), (B, "11"), (C, "22")):
        bench.driver.hear(node, Digest(JOB, GENERATION, 10, STAMP, check))
    bench.adopt()
    assert set(bench.office.trust.tainted) == {C} and bench.phase == "freezing"


def test_who_was_to_take_the_same_state_of_another_does_not_keep_its_own() -> None:
    """All daemons were restarted before it did, and no leader remembers that it differed."""
    at, later = point_of(10), Tag(GENERATION.counter + 1, A, "later")
    took = replace(
        world_of(A, B, C, generation=later, step=10), sources=("keep", "keep", f"peer:{A}")
    )
    held = {A: holds(at, later), C: holds(at, GENERATION)}
    assert without_untaken([took], held) == {A: held[A], C: holds(None, GENERATION)}
    there = {A: held[A], C: holds(at, later)}
    assert without_untaken([took], there) == there, "it has it"
    alone = {C: held[C]}
    assert without_untaken([took], alone) == alone, "nobody else has one"
    further = {A: held[A], C: holds(point_of(11), GENERATION)}
    assert without_untaken([took], further) == further, "that is another state"


def test_what_a_leader_did_not_trust_the_next_one_does_not_either() -> None:
    """All daemons were restarted before the members went back to the checkpoint."""
    first, second = (Trust(Context(A, lambda: "nonce"), JOB) for _ in range(2))
    world = world_of(A, B)
    first.distrust(world)
    back = replace(world, generation=Tag(9, A, "back"), distrusted=first.rollback)
    second.adopt(back)
    held = holds(point_of(20), world.generation)
    assert first.trusted(B, held).point is second.trusted(B, held).point is None
    gone_back = holds(point_of(10), back.generation)
    assert second.trusted(B, gone_back) == gone_back
    assert Trust(Context(A, lambda: "nonce"), JOB).rollback == world.distrusted == NO_TAG


def test_a_state_that_others_have_otherwise_is_trusted_on_no_line() -> None:
    """The world before has gone on apart: what it has made since may be right."""
    trust, before = Trust(Context(A, lambda: "nonce"), JOB), world_of(A, B, C)
    left = replace(world_of(A, B, generation=Tag(9, A, "left")), lineage=Lineage("22"))
    trust.spoil(left, point_of(0).stamp)
    same, later = (holds(point_of(step), before.generation) for step in (0, 1))
    assert trust.trusted(C, same, {before.generation}).point is None
    assert trust.trusted(C, later, {before.generation}) == later
    assert trust.trusted(C, later).point is None
    anew = holds(point_of(0), Tag(10, A, "anew"))
    assert trust.trusted(C, anew) == anew, "all have taken it from one"


def test_what_another_side_knew_is_known_to_a_leader_that_goes_on() -> None:
    """Two sides of a cut meet, and the one that goes on didn't find out who computes wrongly."""
    bench, aside = Bench(), Lineage("22")
    ours = bench.adopt(A, B, step=8)
    theirs = replace(
        world_of(C, generation=Tag(1, C, "x"), step=9), lineage=aside, parent=point_of(4),
        diverged=((A, 1), (C, 2)), spoilt=((LINE, 4), (aside, 20)),
    )  # fmt: skip
    bench.driver.hear(C, status_of("waiting", theirs))
    trust, checkpoints = bench.office.trust, bench.office.checkpoints
    assert trust.quarantined == [C] and trust.diverged == {A: 1, C: 2} and not trust.fit(C)
    assert checkpoints.spoilt == ((aside, 20),), "with its own line it goes on"
    bench.driver.hear(B, fault(ours, B))
    bench.answer(a=holds(point_of(9), ours.generation), b=holds(None))
    (_, order), *_ = bench.sent(Form)
    assert (order.world.diverged, order.world.spoilt) == (((A, 1), (C, 2)), ((aside, 20),))
