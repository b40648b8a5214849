"""The verdict over the probes of processes that are new to a job."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from elasticd.core.jobs.status import job_status
from elasticd.core.leading.exactness import verdict
from elasticd.core.leading.phases.moves import Outcome
from elasticd.core.words.records import JobRecord, ProbeDigests, World
from elasticd.core.words.worlds import Fault, Sampled, Verdict
from elasticd.recovery.exactness import NO_REPEAT, UNTOLD, tells_of_bits
from elasticd.recovery.origin import Origin, origin_of
from elasticd.recovery.relief import RECOMPUTE_LEVEL
from elasticd.recovery.samples import NO_SAMPLES, Samples
from elasticd.settings.job import BatchSettings
from tests.unit.core.leading.bench import (
    GENERATION,
    JOB,
    A,
    B,
    Bench,
    C,
    holds,
    point_of,
    spec_of,
    status_of,
    world_of,
)


def probe(**changes: Any) -> ProbeDigests:
    return replace(ProbeDigests(True, gradient="g", update="u", layout="l", state="s"), **changes)


def test_all_alike() -> None:
    assert verdict([(A, probe()), (B, probe()), (C, probe())]) == (True, "")


@pytest.mark.parametrize(
    ("key", "said"), [("gradient", "gradients"), ("update", "updates"), ("layout", "state leaves")]
)
def test_what_differs_is_named(key: str, said: str) -> None:
    odd = probe(**{key: "other"})
    assert verdict([(A, probe()), (B, odd)]) == (False, f"{said} differ between a and b")


def test_what_does_not_repeat() -> None:
    exact, reason = verdict([(A, probe()), (B, probe(repeats=False))])
    assert not exact and reason.startswith("on b one grain")


def test_a_leader_of_the_release_before_knows_that_bits_differ_where_nothing_repeats() -> None:
    before = (
        "one grain computed twice gave different bits: its samples or the loss draw from a"
        " generator of their own, or the processor adds in another order each time"
    )
    assert before in NO_REPEAT and "a dataset that counts" in NO_REPEAT
    assert tells_of_bits(f"on b {NO_REPEAT}") and tells_of_bits(f"on b {before}")


def test_newcomers_that_were_prepared_with_different_states_are_not_compared() -> None:
    later = probe(state="t", gradient="h", update="v")
    assert verdict([(A, probe()), (B, later)]) == (True, "")
    assert verdict([(A, probe()), (B, later), (C, replace(later, update="w"))]) == (
        False,
        "updates differ between b and c",
    )


def fresh(bench: Bench, world: World, **odd: Any) -> None:
    """Members tell what their new processes' probes came to, ``b`` something else."""
    for probed in (False, True):
        for node in world.members:
            told = status_of("active", world)
            assert told.trainer is not None
            found = probe(**(odd if node == B else {})) if probed else None
            trainer = replace(told.trainer, probe=found, judged=False)
            bench.driver.hear(node, replace(told, trainer=trainer))


def test_why_it_is_lost_is_told_once_and_shown_from_then_on() -> None:
    bench = Bench()
    world = bench.adopt()
    assert bench.driver.summary()["exact_reason"] is None
    fresh(bench, world, gradient="other")
    why = "gradients differ between a and b"
    assert [event.reason for event in bench.told("exact_lost")] == [why]
    assert [(v.exact, v.reason) for _, v in bench.sent(Verdict)] == [(False, why)] * 3
    bench.office.exactness.lose("something else")
    assert len(bench.told("exact_lost")) == 1
    shown = bench.driver.summary()
    assert (shown["exact"], shown["exact_reason"]) == (False, why)
    assert bench.driver.historied(bench.record).inexact == why


def built(bench: Bench, step: int, samples: Samples = NO_SAMPLES, /, **other: str) -> World:
    """Fresh processes begin at this step, all built alike."""
    world = bench.adopt(step=step)
    prints = {"mlx": "0.31 cpu", "model/w": "float32[4]", "grain0": "ab", **other}
    for node in world.members:
        told = status_of("active", world, committed=step)
        assert told.trainer is not None
        trainer = replace(told.trainer, fingerprint=prints, samples=samples, probe=probe())
        bench.driver.hear(node, replace(told, trainer=replace(trainer, judged=False)))
    return world


@pytest.mark.parametrize("step", [0, 5])
def test_what_a_job_was_built_of_when_it_began_is_kept(step: int) -> None:
    """In a job that an older version has begun, as of what it goes on with."""
    bench = Bench()
    world = built(bench, step)
    assert (bench.driver.historied(bench.record).origin == ()) == (step == 0), "no step is taken"
    bench.progress(world, step + 1)
    kept = dict(bench.driver.historied(bench.record).origin)
    assert kept.keys() == {"mlx", "model", "data"} and kept["mlx"] == "0.31 cpu"
    assert bench.told("exact_lost") == []


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"mlx": "0.32 cpu"}, "MLX is 0.32 cpu, and was 0.31 cpu"),
        ({"grain0": "cd", "mlx": "0.32 cpu"}, "its data is another; MLX is 0.32 cpu, and was 0.31"),
        ({"model/w": "float32[5]"}, "its model is another"),
        ({"a later version's": "1"}, ""),
    ],
)
def test_going_on_with_something_else_costs_it(other: dict[str, str], said: str) -> None:
    bench = Bench(origin=origin_of({"mlx": "0.31 cpu", "model/w": "float32[4]", "grain0": "ab"}))
    built(bench, 5, NO_SAMPLES, **other)
    reasons = [event.reason for event in bench.told("exact_lost")]
    if not said:
        assert reasons == []
        return
    (reason,) = reasons
    assert reason.startswith("from step 6 on not all is as when the job began: ")
    assert said in reason and bench.driver.summary()["exact_reason"] == reason
    assert bench.office.exactness.promised, "members are alike, so who joins is compared with them"
    bench.office.exactness.lose("updates differ between a and b")
    assert not bench.office.exactness.promised


@pytest.mark.parametrize(("form", "said"), [(1, ["its samples are others"]), (2, [])])
def test_going_on_with_other_samples_costs_it_where_they_are_told_in_the_same_form(
    form: int, said: list[str]
) -> None:
    began = {"mlx": "0.31 cpu", "model/w": "float32[4]", "grain0": "ab"}
    bench = Bench(origin=origin_of(began, Samples(1, {"data/sample 0": "x"})))
    built(bench, 5, Samples(form, {"data/sample 0": "y"}))
    assert [e.reason.rpartition(": ")[2] for e in bench.told("exact_lost")] == said


def test_the_next_leader_learns_it_from_those_who_have_stayed() -> None:
    """The one that knew it died before it told anybody."""
    bench = Bench()
    world = bench.adopt(step=5)
    told = status_of("active", world, committed=5)
    assert told.trainer is not None and told.trainer.judged
    stayed = replace(told.trainer, fingerprint={"mlx": "0.31 cpu"})
    for node in world.members:
        bench.driver.hear(node, replace(told, trainer=stayed))
    assert bench.office.exactness.origin == (("mlx", "0.31 cpu"),)
    built(bench, 5, mlx="0.32 cpu")
    (reason,) = (event.reason for event in bench.told("exact_lost"))
    assert reason.endswith("MLX is 0.32 cpu, and was 0.31 cpu")


def test_the_next_leader_learns_it_from_a_record_that_comes_later() -> None:
    bench = Bench()
    bench.adopt(step=5)
    bench.driver.recall(replace(bench.record, origin=(("mlx", "0.31 cpu"),)))
    built(bench, 5, mlx="0.32 cpu")
    (reason,) = (event.reason for event in bench.told("exact_lost"))
    assert reason.endswith("MLX is 0.32 cpu, and was 0.31 cpu")


MLX_31, MLX_32 = (("mlx", "0.31 cpu"),), (("mlx", "0.32 cpu"),)
EARLIER, LATER = replace(GENERATION, counter=1), GENERATION


def test_an_older_record_costs_it_where_nobody_knew_what_was_built_before() -> None:
    """Its disk alone had it, and the job has gone on from a checkpoint without it."""
    bench = Bench()
    world = built(bench, 5, mlx="0.32 cpu")
    assert bench.told("exact_lost") == []
    bench.driver.recall(replace(bench.record, origin=MLX_31, began=EARLIER))
    bench.driver.hear(world.members[0], bench.office.statuses[world.members[0]])
    (reason,) = (event.reason for event in bench.told("exact_lost"))
    assert reason.endswith("MLX is 0.32 cpu, and was 0.31 cpu")


@pytest.mark.parametrize("first", [MLX_31, MLX_32])
def test_of_two_beginnings_the_later_one_counts(first: Origin) -> None:
    """Of the first one no step is left. Whichever name comes first in the alphabet."""
    second = MLX_32 if first is MLX_31 else MLX_31
    one = Bench(origin=first, began=EARLIER).record
    two = replace(one, origin=second, began=LATER)
    for merged in (one.merged(two), two.merged(one)):
        assert (merged.origin, merged.began) == (second, LATER)


def test_a_job_that_begins_again_forgets_what_it_was_built_of() -> None:
    bench = Bench(origin=MLX_32, began=EARLIER)
    world = bench.adopt()
    for node in world.members:
        told = status_of("active", world)
        assert told.trainer is not None
        trainer = replace(told.trainer, fingerprint=dict(MLX_31), probe=probe(), judged=False)
        bench.driver.hear(node, replace(told, trainer=trainer))
    bench.progress(world, 1)
    kept = bench.driver.historied(bench.record)
    assert (kept.origin, kept.began) == (MLX_31, LATER) and not bench.told("exact_lost")


def test_members_that_an_earlier_leader_has_judged_are_compared_once_more() -> None:
    """It may have died before its record said what it had found."""
    bench = Bench(origin=MLX_31, began=EARLIER)
    world = bench.adopt(step=5)
    told = status_of("active", world, committed=5)
    assert told.trainer is not None and told.trainer.judged
    stayed = replace(told.trainer, fingerprint=dict(MLX_32))
    for node in world.members:
        bench.driver.hear(node, replace(told, trainer=stayed))
    (reason,) = (event.reason for event in bench.told("exact_lost"))
    assert reason.endswith("MLX is 0.32 cpu, and was 0.31 cpu")


def test_a_record_that_comes_later_says_why_the_job_is_not_exact() -> None:
    """Another side has found it out while both were apart."""
    bench = Bench()
    bench.office.exactness.required = True
    world = bench.adopt(step=5)
    why = "updates differ between a and b"
    bench.driver.recall(replace(bench.record, inexact=why))
    shown = bench.driver.summary()
    assert (shown["exact"], shown["exact_reason"]) == (False, why)
    assert bench.office.exactness.apart and not bench.told("exact_lost"), "it was told"
    bench.driver.hear(world.members[0], bench.office.statuses[world.members[0]])
    assert isinstance(bench.driver.end, Outcome) and why in bench.driver.end.reason


def test_of_two_reasons_the_one_is_kept_that_says_more() -> None:
    bits, sample = "gradients differ between a and b", "the sample at position 3 is another"
    relief = "4 instead of 8 samples are in a grain"
    record = Bench().record
    for one, other, kept in (
        (bits, sample, bits), (relief, UNTOLD, relief), (sample, bits, bits), ("", UNTOLD, UNTOLD),
    ):  # fmt: skip
        left, right = (replace(record, inexact=text) for text in (one, other))
        assert left.merged(right).inexact == right.merged(left).inexact == kept


def test_a_job_that_has_taken_no_step_may_begin_with_something_else() -> None:
    bench = Bench(origin=(("mlx", "0.31 cpu"),))
    built(bench, 0, mlx="0.32 cpu")
    assert bench.told("exact_lost") == []


def test_the_next_leader_knows_it_from_the_record() -> None:
    bench = Bench(inexact="updates differ between a and b")
    bench.adopt()
    shown = bench.driver.summary()
    assert (shown["exact"], shown["exact_reason"]) == (False, "updates differ between a and b")
    assert bench.told("exact_lost") == []


def test_that_members_compute_other_bits_the_next_leader_knows_whatever_cost_it_before() -> None:
    """Else that one blames a member for what its chip does."""
    bench = Bench()
    bench.adopt()
    bench.office.exactness.lose("memory was short")
    bench.office.exactness.part("updates", ((A, "M1"), (B, "M3")))
    bench.office.exactness.part("gradients", ((A, "M1"), (B, "M3")))
    assert [event.reason for event in bench.told("exact_lost")] == ["memory was short"]
    record = bench.driver.historied(bench.record)
    why = "memory was short; updates differ between a (M1) and b (M3)"
    assert record.inexact == why
    later = Bench(inexact=record.inexact)
    assert later.office.exactness.apart and later.driver.summary()["exact_reason"] == why


def test_a_world_of_an_older_leader_may_only_say_that_it_is_lost() -> None:
    bench = Bench()
    bench.office.take(replace(world_of(A, B), exact=False))
    assert "no record says why" in bench.driver.summary()["exact_reason"]


def test_a_job_that_requires_it_fails_before_its_first_step() -> None:
    bench = Bench()
    bench.office.exactness.required = True
    fresh(bench, bench.adopt(), repeats=False)
    end = bench.driver.end
    assert isinstance(end, Outcome)
    assert end.state == "failed"
    assert end.reason.startswith("its bits can't be promised: on b one grain computed twice")
    assert "require_exact" in end.reason
    assert bench.sent(Verdict) == [], "the first step waits for it"


def test_a_job_that_requires_it_fails_before_its_grains_are_halved() -> None:
    bench = Bench()
    bench.office.exactness.required = True
    bench.office.relief.level = RECOMPUTE_LEVEL
    bench.office.spec = replace(bench.office.spec, batch=BatchSettings(8, 4))
    bench.office.relief.batch = bench.office.spec.batch
    world = bench.adopt()
    bench.progress(world, 1)
    short = Fault(JOB, world.generation, B, "oom", "MemoryError: unable to allocate")
    bench.driver.hear(B, short)
    bench.answer(**{n: holds(point_of(1), world.generation) for n in bench.members})
    end = bench.driver.end
    assert isinstance(end, Outcome)
    assert "2 instead of 4 samples at once" in end.reason


def test_a_sample_that_differs_is_named() -> None:
    bench = Bench()
    world = bench.adopt()
    for node, position, digest in [(A, 7, "x"), (B, 7, "x"), (A, 30, "y"), (C, 7, "x")]:
        bench.driver.hear(node, Sampled(JOB, world.generation, 1, position, digest))
    assert bench.told("exact_lost") == []
    bench.driver.hear(C, Sampled(JOB, world.generation, 2, 30, "z"))
    (event,) = bench.told("exact_lost")
    assert event.reason.startswith("the sample at position 30 of the data (step 2) is another on c")


def test_a_row_that_differs_is_named_with_its_file() -> None:
    bench = Bench()
    world = bench.adopt()
    for node, digest in ((A, "x"), (B, "y")):
        told = Sampled(JOB, world.generation, 2, 30, digest, "corpus/a.jsonl:17")
        bench.driver.hear(node, told)
    (event,) = bench.told("exact_lost")
    assert "position 30 of the data (step 2), corpus/a.jsonl:17, is another on b" in event.reason


def test_samples_of_the_past_are_forgotten() -> None:
    bench = Bench()
    world = bench.adopt()
    for step in range(1, 100):
        bench.driver.hear(A, Sampled(JOB, world.generation, step, step, "x"))
    assert len(bench.office.exactness.samples) < 20
    assert max(bench.office.exactness.samples) == 99


def test_a_sum_in_another_order_says_so_from_the_beginning() -> None:
    spec = spec_of().to_dict()
    spec["world"]["reduction"] = "fast"
    record = JobRecord(JOB, 1, spec, "digest", "queued")
    shown = job_status(record, {})
    assert shown["exact"] is False and 'reduction = "fast"' in shown["exact_reason"]
    plain = job_status(replace(record, spec=spec_of().to_dict()), {})
    assert (plain["exact"], plain["exact_reason"]) == (True, None)
