"""Newcomers are prepared while the others train, and cost nothing where that fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from elasticd.core.words import effects as e
from elasticd.core.words.records import World

from .cluster import Cluster, JobShape, Setup
from .faults import Injector
from .run import Result, simulate
from .scripts import at_step
from .test_sim import job_events, passes

SHAPE = JobShape(steps=120, every=20)


def worlds(result: Result) -> list[World]:
    return sorted(result.cluster.checkers.forms.values(), key=lambda world: world.generation)


def last_source(result: Result) -> str:
    """Where the last newcomer's state came from, as the world says."""
    world = worlds(result)[-1]
    assert len(world.members) == 3, "somebody was left out"
    kinds = {source.partition(":")[0] for source in world.sources}
    return "keep" if kinds == {"keep"} else (kinds - {"keep"}).pop()


def strike(cluster: Cluster, injector: Injector) -> None:
    """A trainer dies; its successor is the newcomer."""
    injector.inject("trainer")


@pytest.mark.parametrize("seed", range(4))
def test_a_newcomer_enters_a_step_behind_at_most(seed: int) -> None:
    result = passes(simulate(Setup(seed=seed, jobs=(SHAPE,)), script=at_step(10, strike)))
    assert last_source(result) in ("updates", "keep")
    (grown,) = job_events(result, "growth_finished")
    assert grown["whole_states"] == 0


@pytest.mark.parametrize("seed", range(2))
def test_a_log_that_overflows_ends_in_a_whole_state(seed: int) -> None:
    setup = Setup(
        seed=seed, jobs=(replace(SHAPE, steps=600),), log_limit=1, grain_seconds=(0.001, 0.002)
    )
    result = passes(simulate(setup, script=at_step(10, strike)))
    assert len(worlds(result)[-1].members) == 3


@pytest.mark.parametrize("seed", range(2))
def test_state_that_the_script_changes_is_taken_while_the_others_wait(seed: int) -> None:
    setup = Setup(seed=seed, jobs=(SHAPE,), script_state=True)
    result = passes(simulate(setup, script=at_step(10, strike)))
    assert last_source(result) == "peer"


def on_effect(cluster: Cluster, kind: type, action: Callable[[str], None]) -> None:
    """Call ``action(node)`` the first time that a node has such an effect performed."""
    done: list[str] = []
    for host in cluster.hosts.values():
        perform = host._perform

        def watched(effect: e.Effect, node: str = host.name, old: object = perform) -> None:
            assert callable(old)
            old(effect)
            if isinstance(effect, kind) and not done:
                done.append(node)
                cluster.after(0.01, lambda: action(node))

        host._perform = watched  # type: ignore[assignment,method-assign]


@pytest.mark.parametrize("victim", ["holder", "newcomer", "leader"])
@pytest.mark.parametrize("seed", range(2))
def test_whoever_dies_in_the_transfer_the_others_go_on(seed: int, victim: str) -> None:
    def script(cluster: Cluster, injector: Injector) -> None:
        def kill(newcomer: str) -> None:
            others = [n for n in sorted(cluster.hosts) if n != newcomer]
            node = cluster.hosts[others[0]].node
            assert node is not None and node.views.view is not None
            name = {
                "newcomer": newcomer,
                "leader": str(node.views.view.leader),
                "holder": next(n for n in reversed(others)),
            }[victim]
            cluster.say("faults", f"the {victim} {name} dies")
            host = next(h for h in cluster.hosts.values() if h.name == name)
            host.crash()
            cluster.after(3.0, host.start)

        on_effect(cluster, e.PrepareState, kill)
        strike(cluster, injector)

    setup = Setup(seed=seed, jobs=(replace(SHAPE, steps=400),))
    result = passes(simulate(setup, script=at_step(10, script)))
    assert len(worlds(result)[-1].members) == 3
    assert sum(f["lost_steps"] for f in job_events(result, "recovery_finished")) == 0


@pytest.mark.parametrize("how", ["trainer", "node", "drain"])
@pytest.mark.parametrize("seed", range(2))
def test_whoever_comes_in_place_of_a_newcomer_that_is_lost_is_let_in(seed: int, how: str) -> None:
    """One of four has no place: it takes that of whose trainer dies, and is lost meanwhile."""
    lost: list[str] = []

    def script(cluster: Cluster, injector: Injector) -> None:
        def lose(newcomer: str) -> None:
            lost.append(newcomer)
            cluster.say("faults", f"{how} of {newcomer}")
            host = next(h for h in cluster.hosts.values() if h.name == newcomer)
            if how == "drain":
                injector.operator.drain(host.name)
            elif how == "node":
                host.crash()
                cluster.after(60.0, host.start)
            else:
                for child in host.children.values():
                    child.kill()

        on_effect(cluster, e.PrepareState, lose)
        strike(cluster, injector)

    setup = Setup(seed=seed, nodes=4, jobs=(replace(SHAPE, steps=400, world_max=3),))
    result = passes(simulate(setup, script=at_step(10, script)))
    assert lost and len(worlds(result)[-1].members) == 3
