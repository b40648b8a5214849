"""A restarted daemon hears what its children say of themselves before it decides anything."""

from __future__ import annotations

import pytest

from elasticd.core.context import Context
from elasticd.core.taking_part.adoption import Adoption
from elasticd.core.words import effects as e
from elasticd.core.words.reducers import ReducerHere
from elasticd.core.words.trainers import TrainerFinished, TrainerHere
from elasticd.types import JobId
from tests.unit.core.taking_part.test_member_faults import EMPTY, ME

OTHER_JOB = JobId("job-2")
HERE = TrainerHere({}, False, EMPTY.generation, EMPTY.generation, True, 7, True, False)
FINISHED = e.ChildSaid(1, TrainerFinished(EMPTY.generation, 9, EMPTY.stamp))


@pytest.fixture
def adoption() -> Adoption:
    """A trainer, and a reducer, of the daemon before this one."""
    left = {
        1: e.Leftover(1, "trainer", EMPTY.job, False, 101),
        2: e.Leftover(2, "reducer", None, False, 102),
    }
    return Adoption(Context(ME, lambda: "nonce", now=100.0), left)


def come(adoption: Adoption) -> None:
    adoption.take(e.ChildSaid(1, HERE))
    adoption.take(e.ChildSaid(2, ReducerHere(EMPTY.generation, True)))


def test_it_is_complete_once_each_has_said_how_it_is(adoption: Adoption) -> None:
    assert adoption.take(e.ChildSaid(1, HERE)) and not adoption.complete
    assert adoption.take(e.ChildSaid(2, ReducerHere(EMPTY.generation, True)))
    assert adoption.complete
    assert [each.said for each in adoption.trainers(EMPTY.job)] == [HERE]
    assert adoption.trainers(OTHER_JOB) == []
    (reducer,) = adoption.reducers()
    assert reducer.serves(EMPTY.generation) and reducer.left.pid == 102


def test_who_has_ended_is_waited_for_no_more(adoption: Adoption) -> None:
    adoption.take(e.ChildSaid(1, HERE))
    assert adoption.take(e.ChildExited(2, None, ""))
    assert adoption.complete and adoption.reducers() == [] and not adoption.later


def test_what_they_say_and_do_behind_that_is_kept_in_order(adoption: Adoption) -> None:
    come(adoption)
    ended = e.ChildExited(1, -9, "")
    for event in (FINISHED, e.ChildStopped(1, 2.0), ended):
        assert adoption.take(event)
    assert [*adoption.later] == [FINISHED, e.ChildStopped(1, 2.0), ended]


def test_a_word_before_the_introduction_is_kept_too(adoption: Adoption) -> None:
    assert adoption.take(FINISHED) and [*adoption.later] == [FINISHED]
    assert not adoption.complete


def test_what_is_of_no_child_is_not_put_off(adoption: Adoption) -> None:
    assert not adoption.take(e.Tick()) and not adoption.later


def test_after_a_while_nobody_is_waited_for(adoption: Adoption) -> None:
    assert adoption.deadlines() == []
    adoption.take(e.Tick())
    (due,) = adoption.deadlines()
    assert due == 100.0 + adoption.ctx.timing.adopt_seconds
    adoption.ctx.now = due - 0.1
    assert not adoption.complete
    adoption.ctx.now = due
    assert adoption.complete


def test_a_daemon_that_did_not_run_waits_for_as_much_longer(adoption: Adoption) -> None:
    adoption.late(5.0)
    assert adoption.deadlines() == [], "it has not begun to wait"
    adoption.take(e.Tick())
    (due,) = adoption.deadlines()
    adoption.late(5.0)
    assert adoption.deadlines() == [due + 5.0]


def test_who_has_not_come_back_by_then_is_ended(adoption: Adoption) -> None:
    adoption.take(e.ChildSaid(1, HERE))
    adoption.give_up()
    kills = [f.child for f in adoption.ctx.effects if isinstance(f, e.KillChild)]
    assert kills == [2] and adoption.complete
