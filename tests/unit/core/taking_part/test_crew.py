"""How a trainer and its spare are started, replaced and ended."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elasticd.core.context import Context
from elasticd.core.taking_part.adoption import AdoptedTrainer
from elasticd.core.taking_part.crew import Crew
from elasticd.core.words.effects import KillChild, Leftover, StartTrainer, TellTrainer
from elasticd.core.words.trainers import RunScript, TrainerAtRun, TrainerHere
from elasticd.recovery.samples import Samples
from elasticd.types import Tag
from tests.unit.core.taking_part.test_member_faults import EMPTY, LEADER, ME


@pytest.fixture
def crew() -> Crew:
    return Crew(Context(ME, lambda: "nonce", now=100.0), EMPTY.job)


def starts(crew: Crew) -> list[StartTrainer]:
    return [f for f in crew.ctx.effects if isinstance(f, StartTrainer)]


def die_at_start(crew: Crew, times: int = 1) -> None:
    """The trainer ends before its ``Run(…)``, and is replaced as soon as that is allowed."""
    for _ in range(times):
        if crew.trainer is None:
            crew.ctx.now = max(crew.ctx.now, *crew.deadlines(let_go=False))
            crew.replace()
        crew.trainer_ended("exit status 1")
        crew.replace()


def test_a_trainer_that_is_missing_is_started(crew: Crew) -> None:
    crew.replace()
    (start,) = starts(crew)
    assert crew.trainer is not None and crew.trainer.child == start.child and not start.spare


def test_the_spare_takes_its_place_and_nothing_is_started(crew: Crew) -> None:
    crew.replace()
    crew.add_spare()
    spare = crew.spare
    assert spare is not None
    crew.at_run(spare, TrainerAtRun({}))
    crew.trainer_ended("exit status 1")
    crew.replace()
    assert crew.trainer is spare and crew.spare is None and len(starts(crew)) == 2


def test_a_spare_that_waits_at_its_interpreter_goes_on_to_the_script(crew: Crew) -> None:
    crew.replace()
    crew.add_spare()
    assert crew.spare is not None
    crew.spare.waits()
    child = crew.spare.child
    crew.trainer_ended("exit status 1")
    crew.replace()
    assert TellTrainer(child, RunScript()) in crew.ctx.effects


def test_a_trainer_that_dies_before_its_run_is_tried_ever_more_rarely(crew: Crew) -> None:
    crew.replace()
    die_at_start(crew, 4)
    assert crew.trainer is None, "it died four times"
    assert crew.why_none == "trainer died 4 times before Run(...), the last time: exit status 1"
    pauses = []
    for _ in range(6):
        (due,) = crew.deadlines(let_go=False)
        pauses.append(due - crew.ctx.now)
        assert not crew.due(let_go=False)
        crew.ctx.now = due
        assert crew.due(let_go=False)
        crew.replace()
        assert crew.trainer is not None
        crew.trainer_ended("exit status 1")
        crew.replace()
    assert pauses == [1.0, 1.0, 2.0, 4.0, 8.0, 10.0]


def test_after_many_such_deaths_nothing_comes_up_here(crew: Crew) -> None:
    crew.replace()
    die_at_start(crew, 7)
    assert not crew.hopeless
    die_at_start(crew)
    assert crew.hopeless


def test_a_script_that_comes_to_its_run_makes_up_for_them(crew: Crew) -> None:
    crew.replace()
    die_at_start(crew, 3)
    assert crew.trainer is not None
    crew.at_run(crew.trainer, TrainerAtRun({"model": "x"}))
    assert crew.false_starts == 0 and crew.trainer.phase == "ready"
    crew.trainer_ended("exit status 1")
    assert crew.false_starts == 0, "it died later than that"


def test_a_spare_is_no_proof_that_trainers_come_up(crew: Crew) -> None:
    crew.replace()
    die_at_start(crew, 3)
    crew.add_spare()
    assert crew.spare is not None
    crew.at_run(crew.spare, TrainerAtRun({}))
    assert crew.false_starts == 3


def test_there_is_one_spare_and_none_once_the_script_is_done(crew: Crew) -> None:
    crew.replace()
    crew.add_spare()
    crew.add_spare()
    assert len(starts(crew)) == 2
    crew.drop_spare("memory is short")
    assert crew.trainer is not None
    crew.trainer.finish()
    crew.add_spare()
    assert crew.spare is None and crew.done


def test_where_no_job_is_to_run_the_spare_ends_and_the_trainer_is_left_to_its_world(
    crew: Crew,
) -> None:
    crew.replace()
    crew.add_spare()
    assert crew.spare is not None
    child = crew.spare.child
    assert not crew.stand_down("the node is being drained")
    assert KillChild(child, "the node is being drained") in crew.ctx.effects
    assert crew.trainer is not None
    crew.discharge("the node is being drained")
    assert crew.stand_down("the node is being drained")
    assert crew.why_none == "the node is being drained"
    assert crew.deadlines(let_go=True) == [] and not crew.due(let_go=True)


def test_at_the_jobs_end_all_are_ended_but_who_is_done(crew: Crew) -> None:
    crew.replace()
    crew.add_spare()
    assert crew.trainer is not None and crew.spare is not None
    crew.trainer.done()
    spare = crew.spare.child
    crew.end("job finished")
    kills = [f for f in crew.ctx.effects if isinstance(f, KillChild)]
    assert [(kill.child, kill.graceful) for kill in kills] == [(spare, True)]


def test_begun_anew_nothing_counts_that_failed_before(crew: Crew) -> None:
    crew.replace()
    die_at_start(crew, 8)
    crew.renew("the node is tried again")
    assert not crew.hopeless and not crew.why_none
    crew.replace()
    assert crew.trainer is not None


def test_a_stopped_trainer_that_is_done_is_left_alone(crew: Crew) -> None:
    crew.replace()
    assert crew.trainer is not None
    crew.trainer.done()
    crew.kill_stopped(crew.trainer, 2.0)
    assert not [f for f in crew.ctx.effects if isinstance(f, KillChild)]


# --- children of the daemon before ----------------------------------------------------------------

NOW, OLD = Tag(5, LEADER, "n"), Tag(4, LEADER, "o")
HERE = TrainerHere({}, False, NOW, NOW, True, 7, True, False)


def left(child: int, said: TrainerHere, spare: bool = False) -> AdoptedTrainer:
    return AdoptedTrainer(Leftover(child, "trainer", EMPTY.job, spare, 100 + child), said)


def test_the_trainer_of_the_newest_world_goes_on_before_any_other(crew: Crew) -> None:
    fresh = replace(HERE, generation=None, entered=None, used=False)
    older = replace(HERE, generation=OLD, entered=OLD)
    first = crew.adopt([left(1, fresh), left(2, older), left(3, HERE, spare=True)], NOW)
    assert first is not None and first.left.child == 3
    assert crew.children() == {3}, "one that was used in another world is no spare"


def test_one_that_was_never_used_is_kept_as_a_spare(crew: Crew) -> None:
    fresh = replace(HERE, generation=None, entered=None, used=False)
    crew.adopt([left(1, fresh, spare=True), left(2, HERE)], NOW)
    assert crew.trainer is not None and crew.spare is not None
    assert (crew.trainer.child, crew.spare.child) == (2, 1)
    assert crew.of(1) is crew.spare and crew.of(2) is crew.trainer and crew.of(9) is None


def test_what_a_trainer_tells_of_samples_is_told_to_leaders_before_and_after_a_restart(
    crew: Crew,
) -> None:
    samples = Samples(1, {"data/sample 0": "x"})
    crew.add_spare()
    assert crew.spare is not None
    crew.at_run(crew.spare, TrainerAtRun({"model": "x"}, samples))
    assert crew.spare.status().samples == samples
    crew.adopt([left(2, replace(HERE, samples=samples))], NOW)
    assert crew.trainer is not None and crew.trainer.status().samples == samples
