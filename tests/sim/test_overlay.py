"""A cluster above a full mesh's reach: the overlay says who watches whom."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest

from elasticd.core.membership.overlay import FULL_MESH_NODES
from elasticd.types import NodeId

from .cluster import Cluster, JobShape, Setup
from .faults import Injector
from .run import Result, simulate
from .scripts import at_step, led
from .seeds import setup_of
from .test_sim import passes

SHAPE = JobShape(every=10, world_max=3, spare="none")


def run(strike: Callable[[Cluster, Injector], object], nodes: int, steps: int = 20) -> Result:
    assert nodes > FULL_MESH_NODES
    setup = Setup(seed=nodes, nodes=nodes, jobs=(replace(SHAPE, steps=steps),))
    return passes(simulate(setup, script=at_step(8, strike)))


def silence(cluster: Cluster, nodes: Iterable[NodeId]) -> Callable[[], None]:
    """Power fails: nothing comes from them any more, and nobody's connection closes. Returns what
    starts them again."""
    nodes = list(nodes)
    ways = [(n, other) for n in nodes for other in cluster.hosts if other != n]
    heal = cluster.network.cut([*ways, *((b, a) for a, b in ways)], close=False)
    for node in nodes:
        cluster.hosts[node].pause()

    def again() -> None:
        for node in nodes:
            cluster.hosts[node].crash()
            cluster.hosts[node].start()
        heal()

    return again


def views_of(cluster: Cluster, nodes: Iterable[NodeId]) -> set[tuple[NodeId, ...]]:
    found = set()
    for name in nodes:
        node = cluster.hosts[name].node
        assert node is not None
        found.add(node.views.view.members if node.views.view is not None else ())
    return found


def agree(cluster: Cluster, nodes: Iterable[NodeId], then: Callable[[float], object]) -> None:
    """Do ``then`` with the seconds that it took until just these nodes share a view."""
    nodes, began = sorted(nodes), cluster.now
    cluster.when(
        lambda: views_of(cluster, nodes) == {tuple(nodes)},
        lambda: then(cluster.now - began),
    )


@pytest.mark.parametrize("leads", [True, False])
def test_one_that_falls_silent_is_left_out_by_all(leads: bool) -> None:
    took: list[float] = []

    def strike(cluster: Cluster, injector: Injector) -> None:
        leader = led(cluster).name
        victim = leader if leads else max(n for n in cluster.hosts if n != leader)
        again = silence(cluster, [victim])

        def agreed(seconds: float) -> None:
            took.append(seconds)
            again()

        agree(cluster, cluster.hosts.keys() - {victim}, agreed)

    result = run(strike, 70)
    assert took[0] < 3.0
    reasons = [e.reason for _, _, e in result.cluster.checkers.events if e.kind == "node_lost"]
    assert any("silent for" in reason and ", say " in reason for reason in reasons)


@pytest.mark.deep
def test_several_that_fall_silent_at_once_are_left_out_together() -> None:
    """The leader, the next one by name, and five others."""
    took: list[float] = []
    epochs: list[int] = []

    def strike(cluster: Cluster, injector: Injector) -> None:
        before = led(cluster)
        assert before.node is not None
        first = before.node.views.epoch.counter
        others = sorted(cluster.hosts.keys() - {before.name})
        victims = [before.name, others[0], *others[5:75:15]]
        again = silence(cluster, victims)

        def agreed(seconds: float) -> None:
            took.append(seconds)
            node = led(cluster).node
            assert node is not None
            epochs.append(node.views.epoch.counter - first)
            again()

        agree(cluster, cluster.hosts.keys() - set(victims), agreed)

    run(strike, 80)
    assert took[0] < 3.0
    assert epochs[0] <= 4


def cut_in_two(nodes: int, here: Callable[[list[NodeId]], list[NodeId]]) -> None:
    """Both sides agree on themselves, and on everybody once they can talk again."""
    took: list[float] = []

    def strike(cluster: Cluster, injector: Injector) -> None:
        names = sorted(cluster.hosts)
        side = set(here(names))
        ways = [(a, b) for a in side for b in cluster.hosts if b not in side]
        injector._break_rings(ways, False)
        heal = cluster.network.cut([*ways, *((b, a) for a, b in ways)], close=False)

        def agreed(seconds: float) -> None:
            took.append(seconds)
            if len(took) == 2:
                heal()
                agree(cluster, names, took.append)

        for half in (side, cluster.hosts.keys() - side):
            agree(cluster, half, agreed)

    run(strike, nodes, steps=80)
    assert len(took) == 3
    assert max(took[:2]) < 5.0


@pytest.mark.deep
def test_a_few_that_are_cut_off_go_on_and_meet_the_others() -> None:
    """They hear nobody of the overlay but one another: they listen to everyone."""
    cut_in_two(72, lambda names: names[::15])


@pytest.mark.deep
def test_two_halves_go_on_and_meet() -> None:
    """Most nodes of the other half are watched by a few of this one, some by none."""
    cut_in_two(66, lambda names: names[::2])


@pytest.mark.deep
def test_a_dead_link_that_nobody_listens_to_delays_a_view_and_does_not_stop_it() -> None:
    """Between the leader and a member that is no neighbour of its: its proposal goes through one
    that is, once it was not answered for a moment."""
    took: list[float] = []

    def strike(cluster: Cluster, injector: Injector) -> None:
        leader = led(cluster)
        assert leader.node is not None and leader.node.liveness.attention.heeded is not None
        away = cluster.hosts.keys() - leader.node.liveness.attention.heeded - {leader.name}
        deaf, victim = min(away), max(away)
        heal = cluster.network.cut([(leader.name, deaf), (deaf, leader.name)], close=False)
        again = silence(cluster, [victim])

        def agreed(seconds: float) -> None:
            took.append(seconds)
            heal()
            again()

        agree(cluster, cluster.hosts.keys() - {victim}, agreed)

    result = run(strike, 68)
    assert took[0] < 4.0
    events = result.cluster.checkers.events
    assert {e.kind for _, _, e in events} >= {"link_lost", "link_returned"}


@pytest.mark.deep
@pytest.mark.parametrize(("seed", "nodes"), [(906, 69), (917, 66), (993, 72)])
def test_strict_in_a_storm(seed: int, nodes: int) -> None:
    """Views are given up while word of silent members is on its way; all links return at once."""
    drawn = setup_of(seed, nodes=nodes)
    jobs = tuple(replace(job, world_max=job.world_max or 3, spare="none") for job in drawn.jobs)
    passes(simulate(replace(drawn, partition="strict", slowness=(), jobs=jobs)))
