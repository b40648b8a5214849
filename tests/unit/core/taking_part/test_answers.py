"""What a node answers when the leader asks what it holds."""

from __future__ import annotations

import pytest

from elasticd.core.context import Context
from elasticd.core.engines.spares import Warm
from elasticd.core.taking_part.answers import Answers
from elasticd.core.taking_part.trainers import Trainer
from elasticd.core.words.effects import PrepareState, TellTrainer
from elasticd.core.words.records import Wanted
from elasticd.core.words.trainers import FreezeTrainer, TrainerHolds
from elasticd.core.words.worlds import Freeze, Holding, Prepare
from elasticd.types import Tag, TrainerPhase
from tests.unit.core.taking_part.post import EPOCH, HELD
from tests.unit.core.taking_part.test_member_faults import EMPTY, LEADER, ME

HOST = "10.0.0.1:4000"


@pytest.fixture
def answers() -> Answers:
    return Answers(Context(ME, lambda: "nonce", now=100.0), EMPTY.job)


def ask(
    answers: Answers, trainer: Trainer | None, serial: str = "s1", alone: bool = False
) -> int | None:
    """The leader asks; the serial with which the trainer is asked, if it is."""
    answers.ctx.effects.clear()
    answers.on_freeze(Freeze(EPOCH, EMPTY.job, serial, alone), trainer)
    words = [f.message for f in answers.ctx.effects if isinstance(f, TellTrainer)]
    asked = [word.serial for word in words if isinstance(word, FreezeTrainer)]
    return asked[0] if asked else None


def answered(answers: Answers, trainer: Trainer, alone: bool = False) -> Holding:
    serial = ask(answers, trainer, alone=alone)
    assert serial is not None
    answers.on_holds(TrainerHolds(serial, HELD, 3))
    found = answers.ready(Warm(HOST), trainer)
    assert found is not None
    return found


def trainer_in(phase: TrainerPhase) -> Trainer:
    return Trainer(7, 77, phase)


@pytest.mark.parametrize("phase", ["ready", "active", "finished"])
def test_a_trainer_that_may_hold_something_is_asked(answers: Answers, phase: TrainerPhase) -> None:
    holding = answered(answers, trainer_in(phase))
    assert holding.able and (holding.point, holding.committed) == (HELD, 3)
    assert (holding.serial, holding.epoch, holding.host) == ("s1", EPOCH, HOST)
    assert answers.answerer == 7


@pytest.mark.parametrize("phase", [None, "starting", "waiting", "done"])
def test_where_nothing_can_be_held_the_answer_comes_at_once(
    answers: Answers, phase: TrainerPhase | None
) -> None:
    trainer = None if phase is None else trainer_in(phase)
    assert ask(answers, trainer) is None
    holding = answers.ready(Warm(HOST), trainer)
    assert holding is not None and not holding.able and holding.point is None
    assert answers.answerer is None


def test_the_answer_waits_for_a_warm_reducer_unless_nobody_else_is_asked(answers: Answers) -> None:
    trainer = trainer_in("active")
    for alone in (False, True):
        serial = ask(answers, trainer, alone=alone)
        assert serial is not None
        answers.on_holds(TrainerHolds(serial, HELD, 3))
        assert (answers.ready(None, trainer) is not None) is alone


def test_the_answer_is_given_once(answers: Answers) -> None:
    trainer = trainer_in("active")
    answered(answers, trainer)
    assert answers.ready(Warm(HOST), trainer) is None


def test_an_answer_to_an_earlier_question_does_not_count(answers: Answers) -> None:
    trainer = trainer_in("active")
    first = ask(answers, trainer, "s1")
    second = ask(answers, trainer, "s2")
    assert first is not None and second is not None and second > first
    answers.on_holds(TrainerHolds(first, HELD, 3))
    assert answers.ready(Warm(HOST), trainer) is None
    answers.on_holds(TrainerHolds(second, None, None))
    holding = answers.ready(Warm(HOST), trainer)
    assert holding is not None and (holding.serial, holding.point) == ("s2", None)


def test_a_trainer_that_dies_meanwhile_holds_nothing(answers: Answers) -> None:
    trainer = trainer_in("active")
    serial = ask(answers, trainer)
    assert serial is not None
    answers.on_holds(TrainerHolds(serial, HELD, 3))
    answers.trainer_ended()
    holding = answers.ready(Warm(HOST), None)
    assert holding is not None and not holding.able and holding.point is None


def test_what_was_asked_in_an_older_view_is_answered_to_nobody(answers: Answers) -> None:
    trainer = trainer_in("active")
    serial = ask(answers, trainer)
    assert serial is not None
    answers.void()
    answers.on_holds(TrainerHolds(serial, HELD, 3))
    assert answers.ready(Warm(HOST), trainer) is None and answers.deadlines() == []


def test_another_question_makes_the_last_answer_void(answers: Answers) -> None:
    trainer = trainer_in("active")
    answered(answers, trainer)
    ask(answers, trainer, "s2")
    assert answers.answerer is None


def test_a_trainer_that_does_not_answer_is_overdue_once_each_time(answers: Answers) -> None:
    trainer, seconds = trainer_in("active"), answers.ctx.timing.holding_seconds
    ask(answers, trainer)
    assert answers.deadlines() == [100.0 + seconds]
    answers.ctx.now += seconds - 0.1
    assert not answers.overdue()
    answers.ctx.now += 0.1
    assert answers.overdue() and not answers.overdue()
    answers.ctx.now += seconds
    assert answers.overdue()


def test_one_that_has_answered_is_not_overdue_though_a_reducer_is_missing(answers: Answers) -> None:
    serial = ask(answers, trainer_in("active"))
    assert serial is not None
    answers.on_holds(TrainerHolds(serial, HELD, 3))
    answers.ctx.now += 100.0
    assert not answers.overdue() and answers.deadlines() == []


def test_serials_go_on_where_the_daemon_before_has_ended(answers: Answers) -> None:
    answers.recall(41)
    assert ask(answers, trainer_in("active")) == 42


# --- states for a trainer in no world -------------------------------------------------------------

ORDER = Prepare(EMPTY.job, EMPTY.generation, Wanted(HELD, (LEADER,)))


def test_a_state_is_brought_to_a_trainer_that_waits(answers: Answers) -> None:
    assert answers.on_prepare(ORDER, trainer_in("ready")) is None
    (brought,) = [f for f in answers.ctx.effects if isinstance(f, PrepareState)]
    done = answers.prepared(brought.serial, HELD, "", True)
    assert done is not None and (done.point, done.generation, done.replays) == (
        HELD, EMPTY.generation, True,
    )  # fmt: skip
    assert answers.prepared(brought.serial, HELD, "") is None, "it is told once"


@pytest.mark.parametrize("phase", [None, "starting", "active", "finished"])
def test_to_no_other_it_is(answers: Answers, phase: TrainerPhase | None) -> None:
    refusal = answers.on_prepare(ORDER, None if phase is None else trainer_in(phase))
    assert refusal is not None and refusal.point is None and refusal.reason
    assert not [f for f in answers.ctx.effects if isinstance(f, PrepareState)]


def test_nor_to_one_that_is_just_asked_what_it_holds(answers: Answers) -> None:
    trainer = trainer_in("ready")
    ask(answers, trainer)
    assert answers.on_prepare(ORDER, trainer) is not None


def test_only_the_last_delivery_counts(answers: Answers) -> None:
    trainer = trainer_in("ready")
    answers.on_prepare(ORDER, trainer)
    later = Prepare(EMPTY.job, Tag(9, LEADER, "n"), ORDER.wanted)
    answers.on_prepare(later, trainer)
    first, second = [f.serial for f in answers.ctx.effects if isinstance(f, PrepareState)]
    assert answers.prepared(first, HELD, "") is None
    done = answers.prepared(second, None, "no room")
    assert done is not None and (done.generation, done.reason) == (later.generation, "no room")
