"""What is made of trials: which are run, when one setting is called better, what is advised."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from elasticd.cli.trials.measured import (
    Search,
    noise,
    of_recomputing,
    of_storing,
    verdict,
)
from elasticd.preflight.trials import Setting, Trial, TrialSeen, slowest, untried
from elasticd.types import NodeId


def trial(micro: int, *seconds: float, **more: object) -> Trial:
    return Trial(Setting(micro), seconds, **more)  # type: ignore[arg-type]


def search(run: Callable[[int], Trial], whole: int = 64, nodes: int = 1) -> Search:
    return Search(whole, nodes, lambda setting: run(setting.micro))


def tried(found: Search) -> list[int]:
    return [each.setting.micro for each in found.trials]


def test_more_samples_are_tried_as_long_as_that_is_faster() -> None:
    found = search(lambda n: trial(n, *[8 / n if n <= 16 else 5.0] * 3))
    assert found.best(4).setting.micro == 16
    assert tried(found) == [4, 8, 16, 32]


def test_fewer_are_tried_if_more_are_not_faster() -> None:
    found = search(lambda n: trial(n, *[float(n)] * 3))
    assert found.best(4).setting.micro == 1
    assert tried(found) == [4, 8, 2, 1]


def test_what_differs_by_little_is_not_faster() -> None:
    found = search(lambda n: trial(n, *[1.0 - n / 1000] * 3))
    assert found.best(4).setting.micro == 4


def test_every_node_is_to_have_a_grain_and_no_grain_more_than_there_is() -> None:
    found = search(lambda n: trial(n, *[8 / n] * 3), whole=8, nodes=2)
    assert found.best(2).setting.micro == 4
    assert found.passed == ["micro 8: 2 nodes would not have a grain each"]
    found = search(lambda n: trial(n, *[8 / n] * 3), whole=8)
    assert found.best(8).setting.micro == 8
    assert "micro 16: a batch has 8 samples" in found.passed


def test_what_would_not_fit_is_not_tried() -> None:
    gib = 1 << 30
    found = search(
        lambda n: trial(
            n, *[8 / n] * 3, peak_bytes=(1 + n) * gib, active_bytes=gib, limit_bytes=12 * gib
        )
    )
    assert found.best(4).setting.micro == 8
    assert found.passed == ["micro 16: it would take about 17.0 GiB, and 12.0 GiB are to be used"]


def test_where_memory_runs_out_the_largest_that_runs_is_found() -> None:
    def run(n: int) -> Trial:
        return trial(n, *[1.0] * 3) if n <= 2 else trial(n, failed="memory ran out", short=True)

    found = search(run)
    assert found.best(8).setting.micro == 2 and tried(found) == [8, 4, 2]


def test_a_job_that_fails_is_not_tried_again_and_again() -> None:
    found = search(lambda n: trial(n, failed="it ended with status 1: no"))
    assert found.best(8).failed and tried(found) == [8]


@pytest.mark.parametrize(
    ("before", "after", "sure"),
    [
        ((1.0, 1.1, 1.2), (0.8, 0.9, 0.95), True),
        ((1.0, 1.1, 1.2), (0.8, 0.9, 1.05), False),
        ((1.0, 1.0, 1.0), (0.98, 0.98, 0.98), False),
        ((1.0, 1.1), (0.5, 0.5), False),
        ((1.0, 1.0, 1.0), (1.5, 1.5, 1.5), False),
    ],
    ids=["each time", "not each time", "too little", "too few", "slower"],
)
def test_better_is_what_was_faster_each_time(
    before: tuple[float, ...], after: tuple[float, ...], sure: bool
) -> None:
    runs = [[trial(n, *[s] * 3) for s in each] for n, each in ((4, before), (8, after))]
    found = verdict(*runs)
    assert found.sure == sure and (found.gain > 0) == (after[0] < before[0])
    assert found.said.endswith(("longer", "each time", "less than 3%")) == (not sure)


def test_what_runs_differ_by_themselves_is_no_cost() -> None:
    runs = [trial(4, *[1.0] * 3, peak_bytes=2 << 20), trial(4, *[1.2] * 3)]
    assert noise(runs) == pytest.approx(0.2)
    again = Trial(Setting(4, recompute=True), (1.2,) * 3, 1 << 20)
    assert "about as long (runs of one setting differ by 20%)" in of_recomputing(runs, again)
    lucky = Trial(Setting(4, recompute=True), (0.7,) * 3, 1 << 20)
    assert "takes about as long (runs of one" in of_recomputing(runs, lucky), "it computes more"
    stores = Trial(Setting(4, store_every=2), (1.25,) * 4, stored=((1 << 20, 0.1),))
    assert "is less than runs of one setting differ" in of_storing(runs, stores, 10)


def test_what_is_advised_of_checkpoints() -> None:
    runs = [trial(4, *[1.0] * 3), trial(4, *[1.0] * 3)]
    stores = Trial(Setting(4, store_every=2), (1.5,) * 4, stored=((1 << 20, 0.9), (1 << 20, 0.9)))
    said = of_storing(runs, stores, 10)
    assert "one of 1.0 MiB takes 0.9 s beside training (2 were written)" in said
    assert "with every_steps = 10 that is 9.1% of the time, with 49 it would be 2%" in said
    assert of_storing(runs, stores, 100).endswith("every_steps = 100 that is 1.0% of the time")
    assert of_storing(runs, stores, "auto").endswith('"auto" goes by that')
    assert "not known: none was written" in of_storing(runs, trial(4, 1.0), 10)
    longer = of_recomputing(runs, Trial(Setting(4, recompute=True), (1.5,) * 3))
    assert "a step takes 50% longer" in longer


def test_a_setting_counts_as_its_slowest_node_and_as_the_one_with_the_least_memory_left() -> None:
    one, two, three = (NodeId(name) for name in ("a", "b", "c"))
    fast = trial(4, 1.0, 1.0, 1.0, peak_bytes=3, active_bytes=1, limit_bytes=4)
    slow = trial(4, 3.0, 3.0, 3.0, peak_bytes=3, active_bytes=2, limit_bytes=9)
    found = slowest([(one, fast), (two, slow)])
    assert found.median_seconds == 3.0 and not found.failed
    assert (found.peak_bytes, found.active_bytes, found.limit_bytes) == (3, 1, 4)
    broken, short = trial(4, failed="no module"), trial(4, failed="memory ran out", short=True)
    assert slowest([(one, fast), (two, broken)]).failed == "b: no module"
    found = slowest([(one, fast), (two, broken), (three, short)])
    assert found.short and found.failed == "c: memory ran out" and not found.seconds


def test_where_nothing_was_tried_is_said() -> None:
    seen = [
        TrialSeen(NodeId("a"), trial(4, 1.0)),
        TrialSeen(NodeId("b"), trains="lm-1-aaaa"),
        TrialSeen(NodeId("c"), older=True, error="no such table"),
        TrialSeen(NodeId("d"), error="not connected"),
    ]
    assert untried(seen) == ["b: lm-1-aaaa runs there", "d: not connected"]
