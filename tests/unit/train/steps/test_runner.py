"""The promise: no bit of the result depends on how many ranks there are, who computes what, or who
dies when."""

from __future__ import annotations

import random
from typing import Any

import mlx.core as mx
import pytest

from tests.unit.train import models
from tests.unit.train.cohort import Cohort, Result, spec


def run(script: Any, names: str, seed: int = 0, **changes: Any) -> dict[str, Result]:
    return Cohort(spec(**changes), script, random.Random(seed)).run(list(names))


def values(results: dict[str, Result]) -> list[models.Report]:
    for result in results.values():
        if result.error is not None:
            raise result.error
    return [result.value for result in results.values()]


SCRIPTS = {
    "high": models.high_level(),
    "weighted": models.high_level(models.weighted_loss),
    "low": models.low_level(compiled=False),
    "compiled": models.low_level(compiled=True),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_size_of_the_world_changes_no_bit(name: str) -> None:
    (alone,) = values(run(SCRIPTS[name], "a"))
    assert sorted(alone["losses"]) == [1, 2, 3, 4]
    for size in (2, 3):
        for report in values(run(SCRIPTS[name], "abcdef"[:size], seed=size)):
            assert report["losses"] == alone["losses"]
            assert report["digest"] == alone["digest"]
            assert report["seat"].probe == alone["seat"].probe
            assert report["seat"].checkpoints == alone["seat"].checkpoints


def test_both_forms_are_one() -> None:
    (high,) = values(run(SCRIPTS["high"], "a"))
    (low,) = values(run(SCRIPTS["low"], "a"))
    assert high["digest"] == low["digest"]
    assert high["seat"].probe.repeats


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", ["high", "low"])
def test_deaths_change_no_bit(name: str, seed: int) -> None:
    (alone,) = values(run(SCRIPTS[name], "a"))
    dice = random.Random(seed)
    cohort = Cohort(spec(), SCRIPTS[name], dice)
    cohort.kills = {"a": dice.randrange(3, 60), "b": dice.randrange(3, 60)}
    cohort.respawn = bool(seed % 2)
    results = cohort.run(list("abc"))
    died = [n for n, result in results.items() if result.error is not None]
    assert died, "nobody died"
    for rank, result in results.items():
        if rank not in died:
            assert result.value["digest"] == alone["digest"], cohort.worlds
            for number, loss in result.value["losses"].items():
                assert loss == alone["losses"][number]
    assert cohort.committed == 4


def test_who_missed_a_step_s_end_applies_its_gradient() -> None:
    """Whichever call of the dying rank is its last, over one whole step and more."""
    (alone,) = values(run(SCRIPTS["high"], "a"))
    replays = 0
    for last_call in range(14, 40):
        cohort = Cohort(spec(), SCRIPTS["high"], random.Random(last_call))
        cohort.kills = {"a": last_call}
        results = cohort.run(list("abc"))
        replays += cohort.replays
        for name in "bc":
            assert results[name].value["digest"] == alone["digest"], (last_call, cohort.worlds)
    assert replays > 0, "no rank was ever a step behind"


@pytest.mark.parametrize("name", ["high", "low"])
def test_a_grain_that_is_computed_again_has_the_same_bits_and_changes_none(name: str) -> None:
    (alone,) = values(run(SCRIPTS[name], "a"))
    reports = values(run(SCRIPTS[name], "abcd", recovery__recheck_every=2))
    told: dict[tuple[int, int], list[str]] = {}
    for report in reports:
        assert report["digest"] == alone["digest"] and report["losses"] == alone["losses"]
        for step, grain, digest in report["seat"].rechecks:
            told.setdefault((step, grain), []).append(digest)
    assert [step for step, _ in sorted(told)] == [2, 4]
    assert [len(digests) for digests in told.values()] == [3, 3], "its owner and two others"
    assert all(len(set(digests)) == 1 for digests in told.values())


@pytest.mark.parametrize("name", ["high", "low"])
def test_a_newcomer_rehearses_before_the_others_wait_for_it(name: str) -> None:
    """Where the library computes the grains; and it changes no bit of what comes behind."""
    (alone,) = values(run(SCRIPTS[name], "a"))
    rehearsed = 0
    for last_call in range(30, 46):
        cohort = Cohort(spec(), SCRIPTS[name], random.Random(last_call))
        cohort.kills, cohort.respawn, cohort.delivers = {"a": last_call}, True, True
        results = cohort.run(list("ab"))
        for rank in ("b", "a'"):
            assert results[rank].value["digest"] == alone["digest"], cohort.worlds
        rehearsed += results["a'"].value["seat"].rehearsed
    assert (rehearsed > 0) == (name == "high")


@pytest.mark.parametrize("seed", range(4))
def test_tracked_state_is_that_after_the_body(seed: int) -> None:
    script = models.low_level(compiled=False, tracked=True)
    (alone,) = values(run(script, "a"))
    cohort = Cohort(spec(), script, random.Random(seed))
    cohort.kills = {"a": 12 + 7 * seed}
    cohort.respawn = True
    results = cohort.run(list("ab"))
    for name in ("b", "a'"):
        notes = results[name].value["notes"]
        assert notes["bodies"] == 4
        assert mx.array_equal(notes["mean"], alone["notes"]["mean"])
