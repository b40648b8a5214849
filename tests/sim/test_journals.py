"""Journals whose disks are slow or hang: nodes stay alive to the others as long as they should."""

from __future__ import annotations

import pytest

from elasticd.core.duties import STUCK_SECONDS

from .cluster import JobShape, Setup
from .run import Result, simulate
from .scripts import crash_on_slow_disks, hang_a_journal
from .test_sim import job_events, passes


def _said(result: Result, text: str) -> float:
    """When that was said first."""
    moments = result.cluster.moments
    return next(at for at, who, what in moments if who == "script" and text in str(what))


@pytest.mark.parametrize("seed", range(4))
def test_slow_journals_lose_nothing(seed: int) -> None:
    setup = Setup(seed=seed, nodes=3, jobs=(JobShape(steps=60),))
    passes(simulate(setup, script=crash_on_slow_disks))


@pytest.mark.parametrize("seed", range(3))
def test_the_others_do_without_a_node_whose_journal_hangs(seed: int) -> None:
    """It sends heartbeats for a while, is then given up, and takes part again."""
    setup = Setup(seed=seed, nodes=3, jobs=(JobShape(steps=300),))
    result = passes(simulate(setup, script=hang_a_journal))
    (lost,) = job_events(result, "fault_detected")
    assert lost["fault"] == "peer_lost"
    ((at, _, _),) = (f for f in result.cluster.checkers.events if f[2].kind == "fault_detected")
    assert at - _said(result, "hangs") > STUCK_SECONDS, "until then it was heard"
    (grown,) = job_events(result, "growth_finished")
    assert len(grown["members"]) == 3
