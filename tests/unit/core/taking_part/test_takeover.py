"""What a daemon that was started again makes of the processes that the one before has left."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elasticd.core.context import Context
from elasticd.core.engines.spares import SpareReducers
from elasticd.core.taking_part.adoption import AdoptedReducer, AdoptedTrainer
from elasticd.core.taking_part.answers import Answers
from elasticd.core.taking_part.crew import Crew
from elasticd.core.taking_part.elastic import Elastic
from elasticd.core.taking_part.looking import SecondLook
from elasticd.core.taking_part.reports import Reports
from elasticd.core.words.effects import Leftover, TellTrainer
from elasticd.core.words.reducers import ReducerHere
from elasticd.core.words.trainers import RunScript, TrainerHere
from elasticd.types import Tag
from tests.unit.core.taking_part.test_member_faults import EMPTY, LEADER, ME, SPEC

HERE = TrainerHere({}, False, EMPTY.generation, EMPTY.generation, True, 7, True, False)
OTHER = Tag(1, LEADER, "older")


def trainer(child: int, said: TrainerHere, spare: bool = False) -> AdoptedTrainer:
    return AdoptedTrainer(Leftover(child, "trainer", EMPTY.job, spare, 100 + child), said)


def reducer(child: int, generation: Tag) -> AdoptedReducer:
    left = Leftover(child, "reducer", None, False, 100 + child)
    return AdoptedReducer(left, ReducerHere(generation, True))


@pytest.fixture
def part() -> Elastic:
    """Of a node whose journal has a world of two."""
    ctx = Context(ME, lambda: "0000", now=50.0)
    reports = Reports(ctx, EMPTY.job, lambda epoch: pytest.fail("nobody leads"))
    reports.world = replace(EMPTY, members=(LEADER, ME), sources=("keep",) * 2, hosts=("h",) * 2)
    reducers = SpareReducers(ctx)
    crew, answers = Crew(ctx, EMPTY.job), Answers(ctx, EMPTY.job)
    return Elastic(ctx, SPEC, reports, reducers, SecondLook(), crew, answers)


def test_a_trainer_and_its_reducer_go_on_in_the_newest_world(part: Elastic) -> None:
    kept = part.adopt([trainer(1, HERE)], [reducer(2, OTHER), reducer(3, EMPTY.generation)])
    assert kept == {1, 3} and part.trains
    assert part.reducer() == 3 and part.owns(1) and not part.wants_reducer


def test_a_reducer_that_has_ended_is_made_again(part: Elastic) -> None:
    assert part.adopt([trainer(1, HERE)], []) == {1}
    assert part.trains and part.wants_reducer


def test_a_trainer_of_an_older_world_is_kept_beside_it(part: Elastic) -> None:
    kept = part.adopt([trainer(1, replace(HERE, generation=OTHER))], [reducer(3, OTHER)])
    assert kept == {1} and not part.trains


def test_a_node_that_is_no_member_takes_no_place(part: Elastic) -> None:
    assert part.reports.world is not None
    part.reports.world = replace(part.reports.world, members=(LEADER,), sources=("keep",))
    assert part.adopt([trainer(1, HERE)], []) == {1} and not part.trains


def test_a_spare_that_waits_takes_the_place_of_the_trainer_and_runs(part: Elastic) -> None:
    waits = TrainerHere(None, True, None, None, False, 7, False, False)
    assert part.adopt([trainer(1, waits, spare=True)], []) == {1}
    assert TellTrainer(1, RunScript()) in part.ctx.effects


def test_nothing_is_kept_where_no_trainer_has_come_back(part: Elastic) -> None:
    assert part.adopt([], [reducer(3, EMPTY.generation)]) == set()
