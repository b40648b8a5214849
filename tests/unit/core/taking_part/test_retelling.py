"""Nothing is lost, or changes its meaning, between what a trainer says and what the leader gets."""

from __future__ import annotations

import typing
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given

from elasticd.core.taking_part.retelling import (
    failure_for_leader,
    progress_for_leader,
    shards_for_leader,
)
from elasticd.core.words.rewording import reworded
from elasticd.core.words.shards import ShardsFailed, ShardsWritten
from elasticd.core.words.trainers import (
    GiveWorld,
    TrainerProgress,
    TrainerSkipped,
    TrainerWrote,
    WritePlan,
)
from elasticd.core.words.worlds import Progress
from elasticd.train.world import TrainerWorld, Writes
from elasticd.types import JobId
from tests.unit.core.words.drawn import values

JOB = JobId("j")


def hints(kind: type[Any]) -> dict[str, Any]:
    found = typing.get_type_hints(kind, include_extras=True)
    return {field.name: found[field.name] for field in fields(kind)}


@pytest.mark.parametrize(
    ("said", "told", "otherwise"),
    [
        (TrainerProgress, Progress, {"committed", "steps_per_second"}),
        (TrainerWrote, ShardsWritten, {"shards"}),
        (TrainerSkipped, ShardsFailed, set()),
        (
            GiveWorld,
            TrainerWorld,
            {"lineage", "step", "stamp", "checkpoint_folder", "writes"},
        ),
        (WritePlan, Writes, set()),
    ],
)
def test_every_field_is_passed_on_as_it_is(
    said: type[Any], told: type[Any], otherwise: set[str]
) -> None:
    """Also one that is added later: it is forgotten in neither."""
    mine, theirs = hints(said), hints(told)
    assert {name for name, hint in mine.items() if theirs.get(name) != hint} == otherwise


@given(values(TrainerProgress))
def test_what_is_not_known_is_zero(said: TrainerProgress) -> None:
    told = progress_for_leader(JOB, said)
    assert (told.job, told.generation, told.metrics) == (JOB, said.generation, said.metrics)
    assert told.committed == (said.committed or 0)
    assert told.steps_per_second == (said.steps_per_second or 0.0)


@given(values(TrainerWrote))
def test_shards_and_their_tensors_are_told_side_by_side(said: TrainerWrote) -> None:
    told = shards_for_leader(JOB, said)
    assert (told.job, told.stamp, told.check, told.metric) == (
        JOB, said.stamp, said.check, said.metric,
    )  # fmt: skip
    assert told.shards == tuple((one.index, one.bytes, one.digest) for one in said.shards)
    assert [dict(tensors) for tensors in told.tensors] == [one.tensors for one in said.shards]


@given(values(TrainerSkipped))
def test_a_failure_is_told_as_it_is(said: TrainerSkipped) -> None:
    told = failure_for_leader(JOB, said)
    assert (told.job, told.step, told.reason, told.refused) == (
        JOB, said.step, said.reason, said.refused,
    )  # fmt: skip


def test_a_field_that_is_nowhere_is_missed() -> None:
    with pytest.raises(TypeError, match="reason"):
        reworded(ShardsFailed, WritePlan(1, 1, 1), job=JOB)
