"""A silent node of a large view dies by several watchers' word."""

from __future__ import annotations

from elasticd.core.membership.circle import CONFIRM, REPEAT_SECONDS
from elasticd.core.words.views import Missing
from elasticd.types import NodeId

from .peers import CROWD, MANY, ME, VIEW, A, B, C, Hearer


def crowd() -> Hearer:
    return Hearer(CROWD)


def watched(hearer: Hearer) -> list[NodeId]:
    """Whom the node listens to."""
    near = hearer.liveness.circle.near
    assert near is not None
    return sorted(near)


def charged(hearer: Hearer, node: NodeId, by: int, run: str = "1") -> None:
    """So many watchers of a node, not ourselves, tell us that it is silent."""
    watchers = sorted(hearer.liveness.circle.watchers(node) - {ME})
    for watcher in watchers[:by]:
        hearer.liveness.on_missing(watcher, Missing(node, f"{node}.{run}", 2.0))


def test_who_finds_a_neighbour_silent_tells_all_others_and_does_not_bury_it() -> None:
    hearer = crowd()
    silent = watched(hearer)[0]
    hearer.wait(2.25, *(node for node in MANY if node != silent))
    told = hearer.sent(Missing)
    assert {node for node, _ in told} == {*MANY} - {silent}
    assert {missing.node for _, missing in told} == {silent} and silent in hearer.living


def test_it_is_said_again_only_after_a_while() -> None:
    hearer = crowd()
    silent = watched(hearer)[0]
    others = [node for node in MANY if node != silent]
    counts = []
    for seconds in (1.5, REPEAT_SECONDS - 0.25, 0.25):
        hearer.wait(seconds, *others)
        counts.append(len(hearer.sent(Missing)))
    assert counts == [len(others), 0, len(others)]


def test_a_node_that_nobody_here_listens_to_dies_by_the_word_of_its_watchers() -> None:
    hearer = crowd()
    far = next(node for node in MANY if node not in watched(hearer))
    charged(hearer, far, by=CONFIRM - 1)
    assert far in hearer.living
    charged(hearer, far, by=CONFIRM)
    assert far not in hearer.living
    assert "silent for 2.0 s, say " in hearer.ctx.departures.farewell(far)


def test_what_is_said_of_another_run_of_its_daemon_does_not_count() -> None:
    hearer = crowd()
    far = next(node for node in MANY if node not in watched(hearer))
    charged(hearer, far, by=CONFIRM, run="0")
    assert far in hearer.living


def test_nor_what_a_stranger_says() -> None:
    hearer = crowd()
    far = next(node for node in MANY if node not in watched(hearer))
    for name in ("x", "y", "z"):
        hearer.liveness.on_missing(NodeId(name), Missing(far, f"{far}.1", 2.0))
    assert far in hearer.living


def test_in_a_small_view_everyone_judges_alone() -> None:
    hearer = Hearer(VIEW)
    for node in (A, B):
        hearer.liveness.on_missing(node, Missing(C, f"{C}.1", 2.0))
    assert C in hearer.living


def test_a_cut_is_met_by_hearing_everyone_and_judging_alone() -> None:
    hearer = crowd()
    near = watched(hearer)
    rest = [node for node in MANY if node not in near]
    hearer.wait(2.25, *rest)
    assert hearer.liveness.circle.wide
    hearer.wait(3.0, *rest)
    assert not {*near} & {*hearer.living}, "nobody else had to say so"
    assert {*rest} <= {*hearer.living}
