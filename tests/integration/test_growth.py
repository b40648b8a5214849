"""Newcomers take the state while the others train."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.integration.cluster import Cluster
from tests.integration.test_digest import check

pytestmark = pytest.mark.process

Undisturbed = Callable[[str], str]
SLOW = ["--pace-seconds", "0.5"]


def wait_kind(cluster: Cluster, job: str, kind: str) -> dict[str, Any]:
    return cluster.wait_for(kind, lambda: next(iter(cluster.kinds(job, kind)), None))


def test_who_comes_back_follows_the_others_and_enters_a_step_behind(
    cluster: Cluster, undisturbed: Undisturbed
) -> None:
    expected = undisturbed("high.py")
    job = cluster.submit("high.py", job__args=SLOW)

    def again(formed: int) -> dict[str, Any] | None:
        """The world of four that is made after so many."""
        worlds = cluster.kinds(job, "world_formed")[formed:]
        return next((e for e in worlds if len(e["members"]) == 4), None)

    for _ in range(3):
        cluster.wait_whole(job, 3)
        formed = len(cluster.kinds(job, "world_formed"))
        cluster.wait_for("rank 2", lambda: cluster.kill_trainer(job, 2))
        if cluster.wait_for("four again", partial(again, formed))["rung"] == "grow":
            break  # else the spare was so soon that it has answered in the dead one's place
    event = wait_kind(cluster, job, "growth_finished")
    assert event["whole_states"] == 0, cluster.report("a whole state", job)
    check(cluster, job, "high.py", expected)
    assert len(event["members"]) == 4


@pytest.mark.deep
def test_a_holder_that_dies_in_the_transfer_costs_no_more_than_its_own_death(
    cluster: Cluster, undisturbed: Undisturbed
) -> None:
    expected = undisturbed("high.py")
    job = cluster.submit("high.py", job__args=SLOW)
    cluster.wait_whole(job, 3)
    cluster.kill_node("node-3")
    cluster.wait_for("the others", lambda: len(cluster.status(job)["ranks"]) == 3 or None)
    cluster.revive()
    started = partial(cluster.kinds, job, "growth_started")
    cluster.wait_for("its growth", lambda: any(e["entering"] == ["node-3"] for e in started()))
    cluster.wait_for("rank 1", lambda: cluster.kill_trainer(job, 1))
    check(cluster, job, "high.py", expected)
    lost = [event["lost_steps"] for event in cluster.kinds(job, "recovery_finished")]
    most = 2 + len(cluster.unheard(job))
    assert not any(lost) and 0 < len(lost) <= most, cluster.report(f"lost {lost}", job)
