"""Where the next world starts, under which name its history goes on, and who computes what."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elasticd.core.leading.planning import Situation, Start, deal, shares_kept, start_point
from elasticd.core.words.records import World
from elasticd.recovery.relief import Cut
from elasticd.recovery.restore import Resume
from elasticd.types import Lineage, NodeId, Range, Tag
from tests.unit.core.leading.bench import (
    GENERATION,
    LINE,
    STEPS,
    A,
    B,
    C,
    holds,
    manifest_of,
    point_of,
    world_of,
)
from tests.unit.core.leading.councils import roster_of, situation_of, stored

NOTHING = holds(None)
OTHER = Lineage("22")
LATER = Tag(GENERATION.counter + 1, B, "y")


def started(at: Situation) -> Start:
    found = start_point(at)
    assert isinstance(found, Start), found
    return found


def test_a_job_starts_from_one_members_initial_state() -> None:
    nobody = {n: NOTHING for n in (A, B, C)}
    at = situation_of(nobody, world=None, roster=roster_of(), recovering=False)
    start = started(at)
    assert (start.rung, start.resume.point.step) == ("start", 0)
    assert start.resume.sources == ("init", "peer:a", "peer:a")
    assert start.opened == "lineage new0 begins with the job"


def test_no_more_members_start_than_the_job_wants() -> None:
    nobody = {n: NOTHING for n in (A, B, C)}
    at = situation_of(nobody, world=None, roster=roster_of(), recovering=False)
    train = replace(at.spec.world, max=2)
    assert started(replace(at, spec=replace(at.spec, world=train))).resume.members == (A, B)


# --- checkpoints ----------------------------------------------------------------------------------


def test_a_restore_opens_a_lineage_whose_parent_is_the_checkpoint() -> None:
    at = stored(situation_of({A: NOTHING, B: NOTHING}), A, manifest_of(5, A))
    start = started(at)
    assert (start.rung, start.resume.point.step) == ("restore", 5)
    assert set(start.resume.sources) == {"checkpoint"}
    assert start.resume.point.lineage == "new0"
    assert start.parent == start.origin == point_of(5)
    assert start.holders == ((A,),)


def test_a_living_state_is_preferred_to_a_checkpoint_that_is_no_newer() -> None:
    at = situation_of({A: holds(point_of(5), GENERATION), B: NOTHING})
    assert started(stored(at, A, manifest_of(5, A))).rung == "regroup"
    assert started(stored(at, A, manifest_of(6, A))).rung == "restore"


def test_of_two_checkpoints_the_newer_one_that_is_whole_is_restored() -> None:
    older, newer = manifest_of(5, A), manifest_of(9, A, C)
    at = stored(situation_of({A: NOTHING, B: NOTHING}), A, older, newer)
    assert started(at).resume.point.step == 9


def test_a_history_that_was_left_is_never_restored() -> None:
    at = stored(situation_of({A: NOTHING, B: NOTHING}), A, manifest_of(9, A, lineage=OTHER))
    at = replace(at, world=None, roster=at.roster, left=((OTHER, 0),), newest=None)
    for node, status in at.roster.statuses.items():
        at.roster.statuses[node] = replace(status, world=None)
    text = "only checkpoints of histories that were left are within reach"
    assert start_point(at) == text


def test_what_may_be_spoilt_is_restored_only_if_there_is_nothing_else() -> None:
    at = stored(situation_of({A: NOTHING, B: NOTHING}), A, manifest_of(5, A), manifest_of(9, A))
    at = replace(at, newest=manifest_of(5, A))
    assert started(replace(at, spoilt=((LINE, 8),))).resume.point.step == 5
    assert started(replace(at, spoilt=((LINE, 4),))).resume.point.step == 9


def test_what_may_be_spoilt_takes_nobody_from_a_state_that_is_trusted() -> None:
    """Simulator, seed 1303882: no other checkpoint was within reach."""
    at = stored(situation_of({A: NOTHING, B: NOTHING}), A, manifest_of(9, A))
    world = replace(world_of(A, B), generation=LATER, lineage=OTHER, parent=point_of(0))
    at = replace(at, holdings={A: holds(point_of(1, OTHER), LATER), B: NOTHING}, world=world)
    assert started(replace(at, spoilt=((LINE, 4),))).resume.point.step == 1


# --- histories ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("members", "keeps"), [((A, B), True), ((A, C), True), ((C,), False)], ids=str
)
def test_most_of_the_last_world_go_on_under_its_name(
    members: tuple[NodeId, ...], keeps: bool
) -> None:
    at = situation_of({n: holds(point_of(9), GENERATION) for n in members}, committed=9)
    start = started(at)
    assert (start.resume.point.lineage == LINE) is keeps
    assert bool(start.opened) is not keeps
    if not keeps:
        assert start.origin == point_of(9)


def test_with_strict_partitions_nobody_else_trains_so_the_name_stays() -> None:
    at = situation_of({C: holds(point_of(9), GENERATION)}, committed=9, strict=True)
    assert started(at).resume.point.lineage == LINE
    assert started(replace(at, overtaken=True)).resume.point.lineage != LINE


@pytest.mark.parametrize("kept", [OTHER, LINE])
def test_with_strict_partitions_a_history_whose_turn_is_over_does_not_come_back(
    kept: Lineage,
) -> None:
    """Others went on from step 3 as another history, and then from its step 5 as one that has
    stored nothing yet. Only where nothing of them is left the old one goes on."""
    opened = Lineage("33")
    last = replace(world_of(A, generation=LATER, step=5), lineage=opened)
    last = replace(last, parent=point_of(5, OTHER))
    at = situation_of(
        {A: NOTHING, C: holds(point_of(9), GENERATION)}, committed=9, strict=True,
        world=last, roster=roster_of(last), parents={OTHER: point_of(3)},
    )  # fmt: skip
    start = started(stored(at, A, manifest_of(5, A, lineage=kept)))
    found = start.resume.point.step, start.rung
    assert found == ((5, "restore") if kept == OTHER else (9, "regroup"))


def test_after_the_last_step_all_sides_end_under_one_name() -> None:
    last = holds(point_of(STEPS), GENERATION)
    at = situation_of({C: last}, committed=STEPS)
    assert started(at).resume.point.lineage == LINE


def test_the_shorter_of_two_histories_that_meet_is_left() -> None:
    world = world_of(B, C, generation=LATER)
    other = replace(world, lineage=OTHER, parent=point_of(3))
    at = situation_of(
        {A: holds(point_of(7), GENERATION), B: holds(point_of(9, OTHER), LATER)},
        committed=9, world=other, roster=roster_of(other), parents={OTHER: point_of(3)},
    )  # fmt: skip
    start = started(at)
    assert start.resume.sources[start.resume.members.index(A)] == "peer:b"
    (parting,) = start.parted
    assert (parting.left, parting.step, parting.since) == (LINE, 7, 3)


def test_a_state_is_called_as_the_world_calls_it_that_its_holder_has_entered() -> None:
    world = replace(world_of(A, B, C, generation=LATER, step=9), lineage=OTHER)
    held = holds(point_of(9), LATER)
    at = situation_of({A: held, B: held, C: held}, world=world, roster=roster_of(world))
    assert started(at).resume.point.lineage == OTHER


def test_who_alone_holds_an_old_state_rescues_it() -> None:
    at = situation_of({A: holds(point_of(4), GENERATION), B: NOTHING}, committed=9)
    assert started(at).rung == "rescue"


def test_a_world_that_is_cut_off_is_waited_for_before_anything_else() -> None:
    assert start_point(situation_of({}, noisy="one is cut off")) == "one is cut off"


# --- shares ---------------------------------------------------------------------------------------

CUT = Cut(8, 1)
FOUR: tuple[tuple[Range, ...], ...] = (((0, 4),), ((4, 8),))


def broken(lineage: Lineage = LINE, step: int = 9) -> tuple[World, Resume]:
    world = replace(world_of(A, B, step=9), shares_now=(((0, 8),), ()), shares=FOUR)
    return world, Resume(point_of(step, lineage), (B, C), ("keep", "peer:b"), "")


def test_who_stays_in_place_keeps_its_share_of_a_step_that_was_cut() -> None:
    world, resume = broken(step=10)
    assert shares_kept(world, resume, CUT, CUT) == {B: ((4, 8),)}
    world, resume = broken(step=9)
    assert shares_kept(world, resume, CUT, CUT) == {B: ()}


def test_sums_of_another_history_or_of_other_grains_are_void() -> None:
    assert shares_kept(*broken(OTHER), CUT, CUT) == {}
    assert shares_kept(*broken(), CUT, Cut(8, 2)) == {}
    assert shares_kept(None, broken()[1], CUT, CUT) == {}


def test_every_grain_is_dealt_once_and_what_was_summed_is_kept() -> None:
    now, later = deal(CUT, {B: ((4, 8),)}, (B, C), (1.0, 1.0))
    assert {i for start, end in now[0] for i in range(start, end)} >= {4, 5, 6, 7}
    for dealt in (now, later):
        grains = sorted(i for share in dealt for start, end in share for i in range(start, end))
        assert grains == list(range(8))
