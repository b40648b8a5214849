"""From what the members hold to a plan, a wait or a failure, and why."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import pytest

from elasticd.core.leading.council import (
    Apart,
    Council,
    Fail,
    LeftOut,
    OlderState,
    OneOfMany,
    Plan,
    Strain,
    Wait,
    decide,
)
from elasticd.core.leading.relief import Raise
from elasticd.core.words.records import Path, TrainerStatus
from elasticd.core.words.worlds import Holding
from elasticd.recovery.faults import Evidence
from elasticd.types import NodeId, Tag
from tests.unit.core.leading.bench import (
    GENERATION,
    A,
    B,
    C,
    holds,
    manifest_of,
    point_of,
    status_of,
    world_of,
)
from tests.unit.core.leading.councils import council_of, roster_of, situation_of, stored

NINE, EIGHT, NOTHING = holds(point_of(9), GENERATION), holds(point_of(8), GENERATION), holds(None)
DIED = (Evidence(C, "worker_exit", "it died", 49.0),)
LEFT = (Evidence(C, "peer_lost", "it left", 49.0),)


def planned(council: Council) -> Plan:
    found = decide(council)
    assert isinstance(found, Plan), found
    return found


def sources(plan: Plan) -> dict[NodeId, str]:
    return dict(zip(plan.start.resume.members, plan.start.resume.sources, strict=True))


def cut_link(council: Council, one: NodeId, other: NodeId) -> Council:
    """Neither reaches the other at any address."""
    statuses = council.at.roster.statuses
    statuses[one] = replace(statuses[one], paths=(Path(other, "*", False),))
    statuses[other] = replace(statuses[other], paths=(Path(one, "*", False),))
    return council


def test_survivors_keep_the_newest_state_and_the_others_take_it() -> None:
    plan = planned(council_of(situation_of({A: NINE, B: NINE, C: NOTHING}, committed=9)))
    assert plan.start.rung == "regroup"
    assert sources(plan) == {A: "keep", B: "keep", C: "peer:a"}
    assert plan.start.resume.reason == "a, b hold step 9; c held nothing"


def test_if_all_hold_the_same_it_is_tried_again() -> None:
    plan = planned(council_of(situation_of({A: NINE, B: NINE, C: NINE}, committed=9)))
    assert plan.start.rung == "retry"
    assert set(sources(plan).values()) == {"keep"}


def test_what_is_not_trusted_is_taken_from_another() -> None:
    at = situation_of({A: NINE, B: NINE, C: NINE}, committed=9)
    plan = planned(council_of(at, trusted={A: NINE, B: NINE, C: replace(NINE, point=None)}))
    assert sources(plan)[C] == "peer:a"


def test_nothing_is_changed_by_deciding() -> None:
    at = situation_of({A: NINE, B: EIGHT, C: NOTHING}, committed=9, waited=True)
    council = cut_link(council_of(at, unwanted=frozenset({B})), A, C)
    kept = [deepcopy(council.at.holdings), deepcopy(council.at.roster), dict(council.trusted)]
    decide(council)
    assert [council.at.holdings, council.at.roster, council.trusted] == kept


# --- who is in it ---------------------------------------------------------------------------------


def test_a_drained_node_is_left_out() -> None:
    at = situation_of({A: NINE, B: NINE, C: NINE}, committed=9, recovering=False)
    plan = planned(council_of(at, unwanted=frozenset({C})))
    assert set(plan.start.resume.members) == {A, B}


def test_a_drained_node_stays_if_it_alone_holds_the_state() -> None:
    at = situation_of({A: EIGHT, B: EIGHT, C: NINE}, committed=9)
    assert sources(planned(council_of(at, unwanted=frozenset({C}))))[C] == "keep"


def test_a_drained_node_stays_if_too_few_are_left() -> None:
    at = situation_of({A: NINE, B: NINE, C: NINE}, committed=9, least=3)
    assert C in planned(council_of(at, unwanted=frozenset({C}))).start.resume.members


def test_a_world_that_should_grow_but_has_only_lost_is_no_growth() -> None:
    at = situation_of({A: NINE, B: NINE, C: NOTHING}, committed=9, recovering=False)
    at = replace(at, world=world_of(A, B), roster=roster_of(world_of(A, B)))
    assert planned(council_of(at)).start.rung == "grow"
    drained = planned(council_of(at, unwanted=frozenset({C})))
    assert drained.start.rung in ("retry", "regroup")


def test_whom_no_ring_can_hold_is_left_out_rather_who_only_takes_the_state() -> None:
    at = situation_of({A: NINE, B: NINE, C: NOTHING}, committed=9)
    plan = planned(cut_link(council_of(at), A, C))
    (told,) = plan.told
    assert isinstance(told, LeftOut)
    assert told.nodes == (C,)
    assert set(plan.holdings) == set(plan.start.resume.members) == {A, B}


def test_too_few_in_one_ring_is_no_world() -> None:
    at = situation_of({A: NINE, B: NINE, C: NOTHING}, committed=9, least=3)
    found = decide(cut_link(council_of(at), A, C))
    assert isinstance(found, Wait)
    assert found.reason.startswith("2 of at least 3 members can be in one ring: ")
    assert found.told == ()


def test_too_few_that_are_able_is_no_world() -> None:
    found = decide(council_of(situation_of({A: NINE}, committed=9, least=2)))
    assert found == Wait("1 of at least 2 members are ready")


# --- which state ----------------------------------------------------------------------------------


def test_where_states_differ_a_checkpoint_is_waited_for_then_one_state_has_to_do() -> None:
    at = situation_of({A: NINE, B: NINE}, committed=9)
    doubted: dict[NodeId, Holding] = {n: replace(NINE, point=None) for n in (A, B)}
    found = decide(council_of(at, trusted=doubted))
    assert found == Wait("there is no checkpoint to go back to")
    plan = planned(council_of(replace(at, waited=True), trusted=doubted))
    assert plan.told == (OneOfMany(A),)
    assert sources(plan) == {A: "keep", B: "peer:a"}


def test_a_newer_checkpoint_out_of_reach_is_waited_for_then_an_older_state_has_to_do() -> None:
    at = situation_of({A: EIGHT, B: EIGHT}, committed=20, newest=manifest_of(20, C))
    found = decide(council_of(at))
    assert found == Wait("shards of checkpoint 20 are on nodes that are away")
    roster = roster_of(world_of(A, B, C), A, B)
    plan = planned(council_of(replace(at, waited=True, roster=roster)))
    assert plan.told == (OlderState(20),)
    assert (plan.start.rung, plan.start.resume.point.step) == ("rescue", 8)


@pytest.mark.parametrize("quiet_seconds", [4.0, 0.0])
def test_with_strict_partitions_a_world_that_is_cut_off_has_to_end_first(
    quiet_seconds: float,
) -> None:
    at = situation_of({A: NINE, B: NINE}, committed=9, strict=True)
    newer = Tag(GENERATION.counter + 1, C, "y")
    found = decide(council_of(at, heard=newer, quiet_seconds=quiet_seconds))
    if quiet_seconds:
        text = "a world that is cut off may train for another 4 s, and only one may"
        assert found == Wait(text)
    else:
        assert isinstance(found, Plan)
    assert isinstance(decide(council_of(at, heard=GENERATION, quiet_seconds=4.0)), Plan)
    free = replace(at, strict=False)
    assert isinstance(decide(council_of(free, heard=newer, quiet_seconds=4.0)), Plan)


# --- what it costs --------------------------------------------------------------------------------


def test_of_members_that_build_different_models_most_are_right() -> None:
    at = situation_of({A: NINE, B: NINE}, committed=9)
    for node, layers in ((A, "2"), (B, "3")):
        trainer = TrainerStatus("active", 7, {"layers": layers}, None, True)
        at.roster.statuses[node] = replace(status_of("active", at.world), trainer=trainer)
    found = decide(council_of(at))
    assert isinstance(found, Apart)
    ((node, reason),) = found.odd
    assert node == B and reason.startswith("layers is 2 on a and 3 on b")


def test_a_node_for_which_the_world_has_no_room_counts_as_well() -> None:
    """The first two build different things; the third shows who of them is odd."""
    at = situation_of({A: NOTHING, B: NOTHING}, committed=0, world=None)
    for node, layers in ((A, "3"), (B, "2"), (C, "2")):
        trainer = TrainerStatus("ready", 7, {"layers": layers}, None, True)
        at.roster.statuses[node] = replace(status_of("ready"), trainer=trainer)
    found = decide(council_of(at))
    assert isinstance(found, Apart) and [node for node, _ in found.odd] == [A]


@pytest.mark.parametrize(
    ("key", "prints", "odd"),
    [
        ("layers", "2 2 3", "c"),
        ("layers", "3 2 2", "a"),
        ("dataset", "2 3", "b"),
        ("grain0", "2 3", ""),
        ("data/a.jsonl:7", "2 3", ""),
        ("data/a.jsonl:7", "2 3 3", "a"),
        ("layers", "1 2 3", ""),
    ],
)
def test_before_anybody_has_trained_a_script_that_is_never_alike_ends_the_job(
    key: str, prints: str, odd: str
) -> None:
    nodes = (A, B, C)[: len(prints.split())]
    at = situation_of(dict.fromkeys(nodes, NOTHING), committed=0, world=None)
    for node, value in zip(nodes, prints.split(), strict=True):
        trainer = TrainerStatus("ready", 7, {key: value}, None, True)
        at.roster.statuses[node] = replace(status_of("ready"), trainer=trainer)
    found = decide(council_of(at))
    if odd:
        assert isinstance(found, Apart) and [node for node, _ in found.odd] == [odd]
    else:
        assert isinstance(found, Fail) and "every rank must build" in found.reason


def test_recoveries_that_come_to_nothing_end_in_a_rest() -> None:
    strain = Strain(DIED, "c: it died", fruitless=9, rest_seconds=2.0)
    found = decide(council_of(situation_of({A: NINE, B: NINE}, committed=9), strain=strain))
    assert isinstance(found, Wait)
    assert found.rest_seconds == 2.0
    assert found.reason == (
        "9 recoveries in a row without one committed step; the next in 2 s; c: it died"
    )


def test_what_is_given_up_for_want_of_memory_is_the_rung() -> None:
    raised = Raise(2, "activations are computed again")
    strain = Strain((Evidence(C, "oom", "no memory", 49.0),), raised=raised)
    plan = planned(council_of(situation_of({A: NINE, B: NINE, C: NINE}), strain=strain))
    assert (plan.start.rung, plan.raised, plan.in_vain) == ("relieve", raised, False)


@pytest.mark.parametrize(
    ("strain", "in_vain"),
    [
        (Strain(), False),
        (Strain(DIED), True),
        (Strain(DIED, unread=1), False),
        (Strain(LEFT), False),
    ],
    ids=["nothing broke", "a trainer died", "a checkpoint was not read", "a node was lost"],
)
def test_only_what_the_job_itself_may_cause_counts_as_a_fruitless_try(
    strain: Strain, in_vain: bool
) -> None:
    at = situation_of({A: NINE, B: NINE, C: NINE}, committed=9)
    assert planned(council_of(at, strain=strain)).in_vain is in_vain


@pytest.mark.parametrize(
    ("stored_step", "committed", "strain", "in_vain"),
    [
        (None, 0, Strain(LEFT), False),
        (5, 5, Strain(LEFT), False),
        (5, 9, Strain(LEFT), True),
        (5, 5, Strain(LEFT, unsure=True), True),
    ],
    ids=["it had not begun", "all was stored", "steps are lost", "nobody knows"],
)
def test_where_nodes_were_lost_it_is_fruitless_if_steps_were_lost_with_them(
    stored_step: int | None, committed: int, strain: Strain, in_vain: bool
) -> None:
    at = situation_of({A: NOTHING, B: NOTHING}, committed=committed, waited=True)
    if stored_step is not None:
        at = stored(at, A, manifest_of(stored_step, A))
    plan = planned(council_of(at, strain=strain))
    assert (plan.start.rung == "start") is (stored_step is None)
    assert plan.in_vain is in_vain


@pytest.mark.parametrize(
    ("resumes", "step", "opens"), [(False, 9, True), (True, 9, False), (True, 5, True)]
)
def test_a_state_from_disk_is_a_recovery_unless_the_job_was_paused_there(
    resumes: bool, step: int, opens: bool
) -> None:
    at = situation_of({A: NOTHING, B: NOTHING}, committed=9, recovering=False)
    at = stored(at, A, manifest_of(step, A))
    plan = planned(council_of(at, strain=Strain(resumes=resumes)))
    assert (plan.start.rung, plan.opens_recovery) == ("restore", opens)
