"""The promise: no bit of the result depends on how many ranks there are, who computes what, or who
dies when."""

from __future__ import annotations

import math
import random
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import pytest

import elasticd
from tests.unit.train import models
from tests.unit.train.cohort import Cohort, Result, spec


def run(script: Any, names: str, seed: int = 0, **changes: Any) -> dict[str, Result]:
    return Cohort(spec(**changes), script, random.Random(seed)).run(list(names))


def values(results: dict[str, Result]) -> list[models.Report]:
    for result in results.values():
        if result.error is not None:
            raise result.error
    return [result.value for result in results.values()]


SLOW = pytest.mark.slow
SCRIPTS = {
    "high": models.high_level(),
    "weighted": models.high_level(models.weighted_loss),
    "high compiled": models.high_level(compiled=True),
    "low": models.low_level(compiled=False),
    "compiled": models.low_level(compiled=True),
    "noisy": models.noisy,
    "counting": models.counting,
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


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=SLOW) for seed in range(2, 6))])
@pytest.mark.parametrize("name", ["high", "high compiled", "low", "noisy", "counting"])
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


@pytest.mark.parametrize(
    "name",
    [
        "high",
        *(pytest.param(name, marks=SLOW) for name in ["low", "noisy", "counting"]),
    ],
)
def test_who_missed_a_step_s_end_makes_it_from_the_same_gradient(name: str) -> None:
    (alone,) = values(run(SCRIPTS[name], "a"))
    replays = 0
    for step in range(2, 5):  # the low-level form names its optimizer in the first
        for seed in range(5):
            cohort = Cohort(spec(), SCRIPTS[name], random.Random(seed))
            cohort.dies_behind = {"a": step}
            results = cohort.run(list("abcd"))
            replays += cohort.replays
            for rank in "bcd":
                assert results[rank].value["digest"] == alone["digest"], (step, cohort.worlds)
                assert results[rank].value["losses"] == alone["losses"], "one has missed a step"
    assert replays > 0, "no rank was ever a step behind"


@pytest.mark.parametrize("first", [14, *(pytest.param(call, marks=SLOW) for call in (15, 16, 17))])
def test_whichever_call_is_a_rank_s_last_no_bit_changes(first: int) -> None:
    """Over one whole step and more."""
    (alone,) = values(run(SCRIPTS["high"], "a"))
    for last_call in range(first, 40, 4):
        cohort = Cohort(spec(), SCRIPTS["high"], random.Random(last_call))
        cohort.kills = {"a": last_call}
        results = cohort.run(list("abc"))
        for name in "bc":
            assert results[name].value["digest"] == alone["digest"], (last_call, cohort.worlds)


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


@pytest.mark.parametrize("name", ["high", "noisy"])
def test_all_show_the_same_sample_now_and_then(name: str) -> None:
    (alone,) = values(run(SCRIPTS[name], "a"))
    assert alone["seat"].shown == []
    reports = values(run(SCRIPTS[name], "abc", recovery__verify_every=2))
    assert [step for step, _, _ in reports[0]["seat"].shown] == [1, 2, 4]
    assert all(report["seat"].shown == reports[0]["seat"].shown for report in reports)
    assert all(report["digest"] == alone["digest"] for report in reports)
    for step, position, _ in reports[0]["seat"].shown:
        assert 20 * (step - 1) <= position < 20 * step


@pytest.mark.parametrize("name", ["high", "low"])
def test_who_has_no_grain_of_a_step_shows_its_sample_too(name: str) -> None:
    one_grain = {"batch__micro": 20}
    (alone,) = values(run(SCRIPTS[name], "a", **one_grain))
    reports = values(run(SCRIPTS[name], "abc", **one_grain, recovery__verify_every=2))
    for report in reports:
        assert [step for step, _, _ in report["seat"].shown] == [1, 2, 4]
        assert report["seat"].shown == reports[0]["seat"].shown
        assert report["digest"] == alone["digest"]


@pytest.mark.parametrize("first", [30, pytest.param(31, marks=SLOW)])
@pytest.mark.parametrize("name", ["high", "low"])
def test_a_newcomer_rehearses_before_the_others_wait_for_it(name: str, first: int) -> None:
    """Where the library computes the grains; and it changes no bit of what comes behind. After most
    of the calls it depends on the threads whether there is time for that."""
    (alone,) = values(run(SCRIPTS[name], "a"))
    rehearsed = 0
    for last_call in range(first, 46, 2):
        cohort = Cohort(spec(), SCRIPTS[name], random.Random(last_call))
        cohort.kills, cohort.respawn, cohort.delivers = {"a": last_call}, True, True
        results = cohort.run(list("ab"))
        for rank in ("b", "a'"):
            assert results[rank].value["digest"] == alone["digest"], cohort.worlds
        rehearsed += results["a'"].value["seat"].rehearsed
    assert (rehearsed > 0) == (name == "high")


def masked_script(masked: int) -> Any:
    """Batches are tuples; all samples of grain ``masked`` of each step are masked."""

    def loss(model: Any, x: mx.array, y: mx.array, mask: mx.array) -> elasticd.Weighted:
        found = model(x)
        each = nn.losses.cross_entropy(found, y) * mask
        hits = ((found.argmax(-1) == y) * mask).sum() / mask.sum()
        return elasticd.Weighted(each.sum() / mask.sum(), mask.sum(), {"hits": hits})

    def script(seat: Any) -> models.Report:
        mx.random.seed(1)
        model = nn.Linear(4, 3)
        data = [(s["x"], s["y"], float(n // 3 != masked)) for n, s in enumerate(models.samples(21))]
        run = elasticd.Run(model=model, optimizer=optim.SGD(0.1), loss=loss, data=iter_of(data))
        shown = [(step.loss, step.metrics) for step in run]
        return {"digest": run.digest(), "shown": shown}

    return script


def iter_of(data: list[Any]) -> Any:
    """As a stream, so that the order is known."""
    return lambda: iter(data)


def test_a_grain_without_weight_counts_as_nothing() -> None:
    """Its mean is 0 / 0; and the others' weights and metrics are those of the world."""
    changes = {"batch__global": 21}
    (alone,) = values(run(masked_script(2), "a", **changes))
    assert all(math.isfinite(loss) and 0 <= seen["hits"] <= 1 for loss, seen in alone["shown"])
    for report in values(run(masked_script(2), "abc", **changes)):
        assert report == alone


def test_a_step_without_any_weight_is_skipped() -> None:
    def script(seat: Any) -> Any:
        model = nn.Linear(4, 3)
        before = model.weight
        run = elasticd.Run(
            model=model,
            optimizer=optim.SGD(0.1),
            loss=lambda model, batch: elasticd.Weighted(model(batch["x"]).mean(), 0.0),
            data=models.samples(),
        )
        losses = [step.loss for step in run]
        same = bool(mx.array_equal(before, model.weight))
        return {"nan": [math.isnan(loss) for loss in losses], "same": same}

    assert values(run(script, "a")) == [{"nan": [True] * 4, "same": True}]


def rooted_script(seat: Any) -> Any:
    """In step 2 the root of 0 is in the loss of one grain of samples that weigh something: it is
    finite, and its gradient is not. In step 3 it is in that of one without weight."""
    mx.random.seed(3)
    model = nn.Linear(4, 3)

    def loss(model: Any, batch: Any, step: int) -> Any:
        special = (batch["y"] == 2).any()
        far = mx.where(mx.array(step in (2, 3)) & special, 0.0, 1.0)
        root = mx.sqrt(mx.square(model.weight * far).sum())
        return elasticd.Weighted(
            mx.square(model(batch["x"])).mean() + root, mx.where((step == 3) & special, 0.0, 1.0)
        )

    run = elasticd.Run(
        model=model, optimizer=optim.SGD(0.1), loss=loss, data=models.samples(), clip_norm=1.0
    )
    shown = {step.number: (step.loss, model.weight.tolist()) for step in run}
    return {"shown": shown, "digest": run.digest()}


def test_a_gradient_that_is_not_finite_is_skipped_alike_though_the_loss_is_finite() -> None:
    changes: Any = {"recovery__on_nan": "skip", "batch__micro": 1}
    (alone,) = values(run(rooted_script, "a", **changes))
    losses, weights = zip(*alone["shown"].values(), strict=True)
    assert all(map(math.isfinite, losses))
    assert weights[0] == weights[1] != weights[2], "of step 2 there is no update"
    assert all(math.isfinite(value) for row in weights[3] for value in row)
    for report in values(run(rooted_script, "abc", **changes)):
        assert report == alone
    for behind in (2, 3):
        cohort = Cohort(spec(**changes), rooted_script, random.Random(behind))
        cohort.dies_behind = {"a": behind}
        cohort.respawn = True
        results = cohort.run(list("abc"))
        assert {results[name].value["digest"] for name in ("b", "c", "a'")} == {alone["digest"]}


def test_a_gradient_that_is_not_finite_stops_the_job() -> None:
    error = run(rooted_script, "a", batch__micro=1)["a"].error
    assert "and the gradient of weight is not finite (recovery.on_nan" in str(error)


def test_in_a_loop_of_its_own_the_script_looks_at_gradients_itself() -> None:
    """As one does that scales its loss, whose gradients overflow now and then."""

    def script(seat: Any) -> Any:
        mx.random.seed(3)
        model = nn.Linear(4, 3)

        def loss(model: Any, batch: Any, far: float) -> Any:
            return mx.sqrt(mx.square(model(batch["x"]) * far).sum())

        run = elasticd.Run(model=model, optimizer=optim.SGD(0.1), data=models.samples())
        finite: list[Any] = []
        for step in run.steps():
            for batch in step.micro_batches():
                far = float(step.number != 2)
                step.accumulate(*nn.value_and_grad(model, loss)(model, batch, far))
            finite.append(mx.isfinite(step.grads["weight"]).all().item())
            if finite[-1]:
                step.apply()
            else:
                step.skip()
        return finite

    finite: Any = values(run(script, "a"))[0]
    assert [*finite] == [True, False, True, True]


def test_a_loss_that_needs_what_comes_below_run_is_not_rehearsed() -> None:
    """A successor has no more of the script behind it than the lines above Run(…)."""
    (alone,) = values(run(late_global_script(), "a"))
    for last_call in range(30, 46, 3):
        cohort = Cohort(spec(), late_global_script(), random.Random(last_call))
        cohort.kills, cohort.respawn, cohort.delivers = {"a": last_call}, True, True
        results = cohort.run(list("ab"))
        for rank in ("b", "a'"):
            assert results[rank].value == alone, cohort.worlds


def late_global_script() -> Any:
    def script(seat: Any) -> Any:
        mx.random.seed(1)
        made: dict[str, float] = {}

        def loss(model: Any, batch: Any) -> mx.array:
            return models.loss(model, batch) * made["scale"]

        model = models.Mixed()
        run = elasticd.Run(
            model=model, optimizer=models.optimizer(), loss=loss, data=models.samples()
        )
        made["scale"] = 2.0
        for _ in run:
            pass
        return run.digest()

    return script


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


class Queued(nn.Module):
    """Keeps the newest samples in a pass, counts passes, and has statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.last = nn.BatchNorm(4), nn.Linear(4, 3)
        self.queue, self.passes = mx.zeros((6, 4)), mx.zeros(1)
        self.freeze(recurse=False, keys=["queue", "passes"])

    def __call__(self, x: mx.array) -> mx.array:
        self.queue = mx.concatenate([x, self.queue])[:6]
        self.passes = self.passes + 1
        return self.last(self.norm(x))


def queued_script(seat: Any) -> str:
    mx.random.seed(1)
    model = Queued()
    run = elasticd.Run(
        model=model, optimizer=models.optimizer(), loss=models.loss, data=models.samples()
    )
    for _ in run:
        pass
    return run.digest()


@pytest.mark.parametrize("micro", [5, 20])
def test_what_grains_leave_otherwise_is_named_unless_it_is_a_statistic(
    micro: int, capsys: pytest.CaptureFixture[str]
) -> None:
    for size in (1, 3):
        values(run(queued_script, "abc"[:size], batch__micro=micro))
        said = capsys.readouterr().err
        assert said.count("elasticd: forward passes change the model's") == (micro < 20)
        assert said.count("forward passes change the model's queue") == (micro < 20)
