"""Which world a trainer is in, what it holds, and what it says of that."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elasticd.core.words import trainers as w
from elasticd.errors import GenerationLost, ProtocolError
from elasticd.train.protocol.effects import Drop, Export, LeaveWorld, Say, TellProgress
from elasticd.types import NanCure, Point, Stamp

from .worlds import (
    FIGURES,
    START,
    Protocol,
    State,
    after,
    ask,
    done,
    enter,
    make_step,
    said,
    tag,
    world,
)

# --- freeze and update ----------------------------------------------------------------------------


def test_a_freeze_that_comes_before_the_update_drops_the_gradient() -> None:
    protocol = Protocol()
    enter(protocol, world(1))
    protocol.hear(w.FreezeTrainer(4))
    assert protocol.effects() == [LeaveWorld(), Say(w.TrainerHolds(4, START, None, ended=False))]
    with pytest.raises(GenerationLost):
        protocol.begin_update()
    assert protocol.held.point == START


def test_a_freeze_that_comes_in_an_update_is_answered_at_its_end() -> None:
    protocol = Protocol()
    enter(protocol, world(1))
    protocol.begin_update()
    protocol.hear(w.FreezeTrainer(4))
    protocol.hear(w.FreezeTrainer(5))
    assert said(protocol) == []
    point, update = after(START, tag(1))
    protocol.end_update(point, update)
    gives = (START.stamp,)
    assert said(protocol) == [
        w.TrainerHolds(4, point, None, gives, ended=False),
        w.TrainerHolds(5, point, None, gives, ended=False),
    ]
    with pytest.raises(GenerationLost):
        protocol.commit(1)


def test_an_update_that_is_given_up_leaves_the_answer_as_it_was() -> None:
    protocol = Protocol()
    enter(protocol, world(1))
    protocol.begin_update()
    protocol.hear(w.FreezeTrainer(4))
    protocol.give_up_update()
    assert said(protocol) == [w.TrainerHolds(4, START, None, ended=False)]


def test_a_trainer_without_a_state_says_so() -> None:
    protocol = Protocol()
    protocol.hear(w.FreezeTrainer(1))
    assert said(protocol) == [w.TrainerHolds(1, None, None, ended=False)]


# --- worlds ---------------------------------------------------------------------------------------


def test_a_world_that_makes_no_sense_is_refused() -> None:
    for wrong in (replace(world(1), rank=1), replace(world(1), shares=())):
        with pytest.raises(ProtocolError, match="makes no sense"):
            Protocol().hear(wrong)


def test_a_newer_world_ends_the_one_that_the_trainer_is_in() -> None:
    protocol = Protocol()
    enter(protocol, world(1))
    protocol.hear(world(2), "new")
    assert protocol.effects() == [LeaveWorld()]
    with pytest.raises(GenerationLost):
        protocol.current()
    assert protocol.is_called
    taken = protocol.take()
    assert taken is not None and (protocol.current().generation, taken[1]) == (tag(2), "new")


def test_a_newer_world_and_delivery_replace_the_ones_that_nobody_took() -> None:
    protocol = Protocol()
    protocol.hear(world(1), "old world")
    protocol.hear(world(2), "new world")
    protocol.hear(w.TakeState(1), "old files")
    protocol.hear(w.TakeState(2), "new files")
    assert protocol.effects() == [Drop("old world"), Drop("old files")]
    taken = protocol.take()
    assert taken is not None and taken[1] == "new world"
    assert protocol.take() == (w.TakeState(2), "new files")
    assert not protocol.is_called


def test_a_freeze_drops_what_came_and_keeps_the_state_of_a_later_world() -> None:
    protocol = Protocol()
    protocol.hear(world(1), "world")
    protocol.hear(w.TakeState(1), "files")
    protocol.hear(w.LoadState(tag(2)), "state")
    protocol.hear(w.FreezeTrainer(2))
    assert done(protocol) == [Drop("world"), Drop("files")]
    enter(protocol, world(2, state="load"))
    assert protocol.state_came(tag(2))
    assert protocol.take_state() == (w.LoadState(tag(2)), "state")


def test_a_state_of_an_older_world_comes_too_late() -> None:
    protocol = Protocol()
    for counter in (1, 2, 1):
        protocol.hear(w.LoadState(tag(counter)), counter)
    assert done(protocol) == [Drop(1), Drop(1)]


def test_who_waits_for_a_state_is_woken_by_the_end_of_the_world() -> None:
    protocol = Protocol()
    enter(protocol, world(1, state="load"))
    assert not protocol.state_came(tag(1))
    protocol.hear(w.FreezeTrainer(1))
    assert protocol.state_came(tag(1))
    with pytest.raises(GenerationLost):
        protocol.take_state()


@pytest.mark.parametrize("way", ["unloaded", "out_of_memory", "lose_reducer"])
def test_leaving_a_world_is_told_once(way: str) -> None:
    protocol = Protocol()
    enter(protocol, world(1))
    getattr(protocol, way)("why")
    (word,) = said(protocol)
    assert word.kind in ("unloaded", "oom", "reducer_lost")
    getattr(protocol, way)("why")
    assert said(protocol) == [], "it was left already, and who made it end knows"


def test_a_lost_script_is_told_once_and_again_to_a_restarted_daemon() -> None:
    protocol = Protocol()
    enter(protocol, world(1))
    for _ in range(2):
        protocol.lose_script("hang", "why")
    assert said(protocol) == [w.TrainerLostScript(tag(1), "hang", "why")]
    assert protocol.introduce(FIGURES)[-1] == w.TrainerLostScript(tag(1), "hang", "why")


def test_a_refusal_is_told_wherever_the_trainer_is() -> None:
    protocol = Protocol()
    protocol.refuse("wrong")
    assert said(protocol) == [w.TrainerRefused("wrong")]


@pytest.mark.parametrize("policy", ["skip", "restore"])
def test_a_loss_that_is_not_finite_ends_the_world_where_that_is_the_policy(policy: NanCure) -> None:
    protocol = Protocol()
    enter(protocol, world(1))
    if policy == "skip":
        protocol.not_finite(1, "nan", policy)
        protocol.current()
    else:
        with pytest.raises(GenerationLost, match="nan"):
            protocol.not_finite(1, "nan", policy)
        assert protocol.world is None
    assert said(protocol) == [w.TrainerNotFinite(tag(1), 1, "nan", policy)]


# --- progress -------------------------------------------------------------------------------------


def test_progress_is_told_of_a_world_once_its_state_is_in_place() -> None:
    protocol = Protocol()
    assert protocol.progress(FIGURES) is None
    enter(protocol, world(1))
    make_step(protocol)
    later = make_step(protocol)
    told = protocol.progress(FIGURES)
    assert told is not None and (told.step, told.committed) == (2, 2)
    enter(protocol, world(2, state="load"))
    assert protocol.progress(FIGURES) is None, "what is held is not of this world"
    protocol.begin_update()
    protocol.end_load(START, complete=True)
    told = protocol.progress(FIGURES)
    assert told is not None and (told.step, told.committed) == (0, None)
    assert later.step == 2


def test_what_was_committed_outlives_a_world_whose_successor_keeps_the_state() -> None:
    protocol = Protocol()
    enter(protocol, world(1))
    point = make_step(protocol)
    protocol.effects()
    protocol.hear(w.FreezeTrainer(1))
    assert said(protocol) == [w.TrainerHolds(1, point, 1, ended=False)]
    enter(protocol, world(2, point, "keep"))
    told = protocol.progress(FIGURES)
    assert told is not None and told.committed == 1


def test_what_changes_the_progress_is_reported() -> None:
    protocol = Protocol()
    protocol.hear(world(1))
    protocol.take()
    protocol.adopt(START)
    protocol.begin_update()
    assert done(protocol) == [TellProgress()]
    protocol.end_update(after(START, tag(1))[0], None)
    protocol.commit(1)
    assert done(protocol) == [TellProgress(), TellProgress()]


# --- states for others, and from others -----------------------------------------------------------


def test_a_state_can_be_read_from_when_it_is_held_until_the_next_update() -> None:
    protocol = Protocol()
    enter(protocol, world(1))
    ask(protocol, START)
    (given,) = done(protocol)
    assert isinstance(given, Export) and given.given.state == State(START)
    protocol.begin_update()
    point, update = after(START, tag(1))
    ask(protocol, point)
    protocol.end_update(point, update)
    assert not [e for e in protocol.effects() if isinstance(e, Export)], "it waits"
    protocol.hold(State(point))
    (given,) = done(protocol)
    assert isinstance(given, Export) and given.given.state == State(point)


def test_an_update_is_given_once_the_body_behind_it_is_done() -> None:
    protocol = Protocol()
    enter(protocol, world(1))
    protocol.begin_update()
    point, update = after(START, tag(1))
    protocol.end_update(point, update)
    protocol.hear(w.FreezeTrainer(4))
    (holds,) = (word for word in said(protocol) if isinstance(word, w.TrainerHolds))
    assert holds.point == point and holds.gives == (START.stamp,), "it will have it"
    ask(protocol, point, since=START.stamp)
    assert not [effect for effect in done(protocol) if isinstance(effect, Export)]
    protocol.hold(State(point), whole := replace(update, complete=True))
    (given,) = (effect for effect in done(protocol) if isinstance(effect, Export))
    assert given.given.updates == [whole]


def test_what_a_body_changed_may_be_untold_then_the_whole_state_is_given() -> None:
    protocol = Protocol()
    enter(protocol, world(1))
    protocol.begin_update()
    point, update = after(START, tag(1))
    protocol.end_update(point, update)
    ask(protocol, point, since=START.stamp)
    protocol.hold(State(point), update)
    (given,) = (effect for effect in done(protocol) if isinstance(effect, Export))
    assert given.given.state == State(point)


def test_who_missed_a_step_s_end_makes_it_in_the_next_world() -> None:
    protocol = Protocol()
    enter(protocol, world(1))
    point, update = after(START, tag(1))
    enter(protocol, world(2, point, "load"))
    protocol.begin_update()
    assert protocol.progress(FIGURES) is None
    protocol.end_update(point, update)
    assert said(protocol) == [w.TrainerLoaded(tag(2), point.step, point.stamp)]
    protocol.commit(1)
    told = protocol.progress(FIGURES)
    assert told is not None and told.committed == 1


def test_what_is_not_held_is_not_waited_for() -> None:
    protocol = Protocol()
    ask(protocol, START)
    enter(protocol, world(1))
    ask(protocol, Point(START.lineage, 7, Stamp("other")))
    assert [type(word) for word in said(protocol)] == [w.TrainerNotExported]


def test_a_delivery_is_void_once_a_later_freeze_was_answered() -> None:
    protocol = Protocol()
    protocol.hear(w.TakeState(3), "files")
    taken = protocol.take()
    assert taken == (w.TakeState(3), "files")
    protocol.hear(w.FreezeTrainer(4))
    with pytest.raises(GenerationLost):
        protocol.begin_preparing(3)
    protocol.effects()
    protocol.hear(w.TakeState(3), "late files")
    assert protocol.effects() == [Drop("late files")]


def test_a_state_that_was_delivered_is_told_of_with_what_it_can_apply() -> None:
    protocol = Protocol()
    protocol.hear(w.TakeState(3), "files")
    protocol.take()
    protocol.begin_preparing(3)
    protocol.end_load(START, complete=True)
    protocol.held.may_replay(True)
    protocol.hold(State(START))
    assert protocol.idle_since(3)
    protocol.effects()
    protocol.prepared(3, "")
    protocol.prepared(3, "why not")
    assert said(protocol) == [
        w.TrainerPrepared(3, START, "", True), w.TrainerPrepared(3, None, "why not", True),
    ]  # fmt: skip
    protocol.hear(world(1))
    assert not protocol.idle_since(3)


def test_what_is_ordered_is_lent_when_it_is_reached() -> None:
    protocol = Protocol()
    enter(protocol, world(1))
    protocol.hear(w.LendState(tag(1), 1, True))
    point = make_step(protocol)
    later = make_step(protocol)
    assert [word for word in said(protocol) if isinstance(word, w.TrainerLends)] == [
        w.TrainerLends(tag(1), 1, point.stamp)
    ]
    ask(protocol, point)
    ask(protocol, later, since=point.stamp)
    lent, followed = (effect.given for effect in done(protocol) if isinstance(effect, Export))
    assert lent.state == State(point) and followed.step == 2


def test_what_cannot_be_lent_is_said_with_its_reason() -> None:
    protocol = Protocol()
    enter(protocol, world(1))
    make_step(protocol)
    protocol.effects()
    protocol.hear(w.LendState(tag(2), 5, True))
    assert said(protocol) == [], "that is another world"
    protocol.hear(w.LendState(tag(1), 1, True))
    assert said(protocol) == [w.TrainerLends(tag(1), 1, Stamp(""), "step 1 is applied already")]


def test_nothing_is_kept_where_memory_is_short() -> None:
    protocol = Protocol()
    enter(protocol, replace(world(1), relief=1))
    assert not protocol.keeps_updates
    protocol.hear(w.LendState(tag(1), 5, True))
    assert said(protocol) == [w.TrainerLends(tag(1), 5, Stamp(""), "memory is short", True)]


# --- orders ---------------------------------------------------------------------------------------


def test_a_halt_is_obeyed_unless_its_step_has_begun() -> None:
    protocol = Protocol()
    enter(protocol, world(1))
    protocol.hear(w.HaltAt(tag(1), 1))
    assert not protocol.visits.is_halted(0)
    make_step(protocol)
    assert protocol.visits.is_halted(1)
    protocol.hear(w.HaltAt(tag(1), -1))
    assert not protocol.visits.is_halted(1)
    protocol.begin_update()
    protocol.hear(w.HaltAt(tag(1), 2))
    assert not protocol.visits.is_halted(2), "it is being applied"


def test_a_step_at_which_the_job_halts_is_stored() -> None:
    protocol = Protocol()
    here = enter(protocol, world(1))
    protocol.hear(w.HaltAt(tag(1), 3))
    assert [here.writes.every_at(step) for step in (2, 3, 4)] == [5, 1, 5]
    protocol.hear(w.SetInterval(tag(1), 7, 8))
    protocol.hear(w.SetInterval(tag(2), 2, 2))
    assert [here.writes.every_at(step) for step in (4, 8)] == [5, 7]


def test_a_probe_is_told_once_and_its_verdict_waited_for() -> None:
    protocol = Protocol()
    enter(protocol, world(1))
    result = w.TrainerProbed(True, "g", "u", "l", START.stamp)
    for _ in range(2):
        protocol.probe(result)
    assert said(protocol) == [replace(result, generation=tag(1))]
    protocol.hear(w.TellVerdict(tag(2), True, ""))
    assert not protocol.visits.is_judged
    protocol.hear(w.TellVerdict(tag(1), True, ""))
    assert protocol.visits.is_judged


def test_release_ends_every_wait_of_the_script() -> None:
    protocol = Protocol()
    enter(protocol, world(1))
    protocol.finish(START)
    assert not protocol.may_end
    protocol.hear(w.ReleaseTrainer())
    assert protocol.may_end and protocol.is_called and protocol.take() is None
