"""How often a job checkpoints that leaves it open."""

from __future__ import annotations

from dataclasses import replace

from elasticd.core.context import Context
from elasticd.core.saving.rhythm import Rhythm
from elasticd.core.saving.testimony import Measured
from elasticd.core.words import effects as e
from elasticd.core.words.shards import Interval
from elasticd.settings.job import JobSpec
from tests.unit.core.saving.desk import JOB, A, B, world_of


def rhythm(every: str | int, recoveries: int = 0) -> Rhythm:
    spec = JobSpec.from_dict(
        {
            "job": {"name": "job", "entrypoint": "train.py"},
            "batch": {"global": 8, "micro": 1},
            "train": {"steps": 100},
            "checkpoint": {"every_steps": every},
        }
    )
    made = Rhythm(Context(A, lambda: "0000", now=50.0), JOB, spec)
    made.enter(replace(world_of(A, B), recoveries=recoveries))
    return made


def told(made: Rhythm) -> list[Interval]:
    sent = [f.message for f in made.ctx.effects if isinstance(f, e.Send)]
    return [message for message in sent if isinstance(message, Interval)]


def test_members_hear_of_an_interval_before_they_get_there() -> None:
    made, measured = rhythm("auto"), Measured(stall_seconds=1.0, step_seconds=0.5)
    made.choose(10, measured, world_of(A, B))
    (said,) = told(made)
    assert said.every == made.every and said.step == 14


def test_what_would_change_little_is_left_as_it_is() -> None:
    made, measured = rhythm("auto"), Measured(stall_seconds=1.0, step_seconds=0.5)
    made.choose(10, measured, world_of(A, B))
    made.choose(20, Measured(stall_seconds=1.1, step_seconds=0.5), world_of(A, B))
    assert len(told(made)) == 1


def test_an_interval_that_the_job_names_stays() -> None:
    made = rhythm(25)
    made.choose(10, Measured(stall_seconds=1.0, step_seconds=0.5), world_of(A, B))
    assert told(made) == []


def test_a_later_leader_counts_failures_since_it_watches() -> None:
    """It does not know in how long a time the job has had the others."""
    chosen = []
    for before in (0, 40):
        made = rhythm("auto", before)
        made.ctx.now += 3600.0
        made.enter(replace(world_of(A, B), recoveries=before + 1))
        made.choose(10, Measured(stall_seconds=1.0, step_seconds=0.5), world_of(A, B))
        chosen.append(made.every)
    assert chosen[0] == chosen[1]
