"""Machines whose chips round otherwise train together, and nobody is blamed for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from .chips import ON_CPU, Chips, drifted
from .cluster import Cluster, JobShape, Setup
from .disk import drift_in
from .faults import Injector
from .releases import RELEASES
from .run import Result, simulate
from .scripts import at_step
from .test_sim import job_events, passes

SHAPE = JobShape(steps=60, every=10, verify_every=5)


def setup_of(seed: int, *chips: int, show: bool, **shape: Any) -> Setup:
    job = replace(SHAPE, **shape)
    return Setup(seed=seed, nodes=len(chips), jobs=(job,), chips=Chips(chips, show))


@pytest.mark.parametrize("show", [True, False])
@pytest.mark.parametrize("chips", [(0, 1), (0, 0, 1), (0, 1, 1, 0)])
def test_all_take_ones_state_and_store_it(chips: tuple[int, ...], show: bool) -> None:
    result = passes(simulate(setup_of(len(chips), *chips, show=show)))
    assert not job_events(result, "fault_detected") and not job_events(result, "node_quarantined")
    assert len(job_events(result, "exact_lost")) == 1
    stored = [event["step"] for event in job_events(result, "checkpoint_committed")]
    assert len([step for step in stored if 0 < step < 60]) > 2, stored
    assert not job_events(result, "recovery_started")


@pytest.mark.parametrize("shape", [{"verify_every": 0}, {"every": 1000}])
def test_either_comparison_will_do(shape: dict[str, int]) -> None:
    result = passes(simulate(setup_of(1, 0, 1, show=False, **shape)))
    assert not job_events(result, "fault_detected")


@pytest.mark.parametrize("show", [True, False])
def test_one_that_joins_later_is_let_in(show: bool) -> None:
    """It shows other bits in its first step, and isn't called odd for that."""

    def strike(cluster: Cluster, injector: Injector) -> None:
        cluster.hosts["n2"].crash()  # type: ignore[index]
        cluster.after(3.0, cluster.hosts["n2"].start)  # type: ignore[index]

    setup = setup_of(3, 0, 0, 1, show=show, steps=400)
    result = passes(simulate(setup, script=at_step(10, strike)))
    assert not job_events(result, "node_unfit")
    worlds = sorted(result.cluster.checkers.forms.values(), key=lambda world: world.generation)
    assert len(worlds[-1].members) == 3


# --- updates that have the same bits on every CPU -------------------------------------------------


def on_cpu(seed: int, *chips: int, **shape: Any) -> Setup:
    return replace(setup_of(seed, *chips, show=True, **shape), chips=Chips(chips, cpu=True))


def is_exact_on_cpu(result: Result) -> None:
    """All updates are made on the CPU, from the first to the last, and nobody is to blame."""
    assert job_events(result, "updates_on_cpu") and not job_events(result, "exact_lost")
    assert not job_events(result, "node_quarantined") and not job_events(result, "node_unfit")
    cluster = result.cluster
    record = cluster.record_of(next(iter(cluster.specs)))
    assert record is not None and record.state == "finished" and record.account["updates_on_cpu"]
    drift = ""
    for _ in range(record.step):
        drift = drifted(drift, ON_CPU)
    last = cluster.last_manifests(record)
    assert last and all(drift_in(manifest) == {drift} for manifest in last)


@pytest.mark.parametrize("chips", [(0, 1), (0, 0, 1), (0, 1, 2, 0)])
def test_updates_that_agree_on_the_cpu_are_made_there(chips: tuple[int, ...]) -> None:
    result = passes(simulate(on_cpu(len(chips), *chips)))
    is_exact_on_cpu(result)
    first, *others = sorted(result.cluster.checkers.forms.values(), key=lambda w: w.generation)
    assert (first.on_cpu, [world.on_cpu for world in others]) == (False, [True])
    assert not job_events(result, "recovery_started")


def begins_on_cpu(cluster: Cluster) -> bool:
    """Its leader has just ordered the world in which the first update is made there."""
    return any(world.on_cpu for world in cluster.checkers.forms.values())


@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize("kinds", [("leader",), ("world",), ("daemons",), ("node", "node")])
def test_they_stay_there_whatever_breaks(kinds: tuple[str, ...], early: bool) -> None:
    """Be it in the moment in which they begin to be made there; also where all is restored from a
    checkpoint, and where one node goes on alone."""

    def strike(cluster: Cluster, injector: Injector) -> None:
        for kind in kinds:
            if kind == "leader":
                leader = next(h for h in cluster.living() if h.node and h.node.views.leading)
                leader.crash()
                cluster.after(1.0, leader.start)
            else:
                injector.inject(kind)

    def early_strike(cluster: Cluster, injector: Injector) -> None:
        cluster.when(lambda: begins_on_cpu(cluster), lambda: strike(cluster, injector))

    if early and len(kinds) > 1:
        pytest.skip("one node alone may begin on its GPU")
    script = early_strike if early else at_step(25, strike)
    is_exact_on_cpu(passes(simulate(on_cpu(1, 0, 0, 1), script=script)))


def test_who_joins_later_makes_them_there_too() -> None:
    def strike(cluster: Cluster, injector: Injector) -> None:
        cluster.hosts["n2"].crash()  # type: ignore[index]
        cluster.after(3.0, cluster.hosts["n2"].start)  # type: ignore[index]

    result = passes(simulate(on_cpu(3, 0, 0, 1, steps=400), script=at_step(10, strike)))
    is_exact_on_cpu(result)
    worlds = sorted(result.cluster.checkers.forms.values(), key=lambda world: world.generation)
    assert len(worlds[-1].members) == 3


def test_where_a_gradient_differs_or_cpus_do_all_is_as_ever() -> None:
    result = passes(simulate(setup_of(1, 0, 1, show=True)))
    assert job_events(result, "exact_lost") and not job_events(result, "updates_on_cpu")


def test_a_job_that_has_begun_on_a_gpu_stays_there() -> None:
    """One node has begun alone; who joins costs the promise, and nobody is blamed."""

    def strike(cluster: Cluster, injector: Injector) -> None:
        cluster.hosts["n1"].start()  # type: ignore[index]

    def begin(cluster: Cluster, injector: Injector) -> None:
        cluster.hosts["n1"].crash()  # type: ignore[index]
        at_step(10, strike)(cluster, injector)

    result = passes(simulate(on_cpu(2, 0, 1, steps=200), script=begin))
    assert not job_events(result, "updates_on_cpu") and job_events(result, "exact_lost")
    assert not job_events(result, "node_quarantined") and not job_events(result, "node_unfit")


def installs(node: str, release: str) -> Any:
    def strike(cluster: Cluster, injector: Injector) -> None:
        host = cluster.hosts[node]  # type: ignore[index]
        host.next_release = RELEASES[release]
        host.crash(power=False)
        cluster.after(0.5, host.start)

    return strike


@pytest.mark.parametrize(
    ("releases", "then"),
    [
        (("present", "present", "before"), "present"),
        (("present",) * 3, "before"),
        (("before",) * 3, "present"),
    ],
)
def test_a_member_of_the_version_before_costs_the_promise(
    releases: tuple[str, ...], then: str
) -> None:
    """Whether it is there from the start, or one is put back to that version, and nobody is
    blamed."""
    setup = replace(on_cpu(1, 0, 1, 0, steps=200), releases=releases)
    result = passes(simulate(setup, script=at_step(10, installs("n2", then))))
    moved = bool(job_events(result, "updates_on_cpu"))
    assert moved == ("before" not in releases)
    (lost, *_) = [e.reason for _, _, e in result.cluster.checkers.events if e.kind == "exact_lost"]
    assert lost.startswith("updates differ between")
    assert ("the older version of elasticd on n2" in lost) == moved
    assert not job_events(result, "node_quarantined") and not job_events(result, "node_unfit")
