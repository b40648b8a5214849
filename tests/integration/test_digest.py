"""The result has the same bits, whatever the world's size and whatever was killed meanwhile."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

import pytest

from tests.chaos import schedule, strikes
from tests.integration.cluster import STEPS, Cluster

pytestmark = pytest.mark.process

SCRIPTS = ("high.py", "low.py")
ONE_OF_BOTH = ("high.py", pytest.param("low.py", marks=pytest.mark.deep))
"""The other is shown by the random kills, in every size of world."""
Undisturbed = Callable[[str], str]


def check(cluster: Cluster, job: str, script: str, expected: str, what: str = "") -> None:
    """Finished with the expected bits, no step lost, every sample used exactly once."""
    check_bits(cluster, job, script, expected, what)
    lost = [e["lost_steps"] for e in cluster.kinds(job, "recovery_finished")]
    lost.append(cluster.status(job)["lost_steps"])
    assert not any(lost), cluster.report(f"lost steps; {what}", job)


def check_bits(cluster: Cluster, job: str, script: str, expected: str, what: str = "") -> None:
    """As above, where all trainers have ended at once: steps that no checkpoint had are lost."""
    cluster.hurry(job)
    status = cluster.wait_end(job)
    assert status["digest"] == expected, cluster.report(f"another digest; {what}", job)
    assert status["digest_step"] == status["steps"] == status["step"]
    assert status["exact"] is True
    cluster.check_ledger(job, status["steps"], cumulative=script == "high.py")


@pytest.mark.parametrize("script", ONE_OF_BOTH)
def test_every_size_of_world_gives_the_same_bits(
    cluster: Cluster, undisturbed: Undisturbed, script: str
) -> None:
    expected = undisturbed(script)
    for size in (1, 2, 3, 4):
        job = cluster.submit(script, recovery__spare="none", world__min=size, world__max=size)
        check(cluster, job, script, expected, f"{size} members")
        formed = cluster.kinds(job, "world_formed")
        assert len(formed[-1]["members"]) == size


@pytest.mark.parametrize(
    ("seed", "size"),
    [
        (1, 4),
        *(
            pytest.param(seed, size, marks=pytest.mark.deep)
            for seed, size in [(2, 4), (3, 3), (4, 3), (5, 2), (6, 2)]
        ),
    ],
)
def test_random_kills_change_no_bit(
    cluster: Cluster, undisturbed: Undisturbed, seed: int, size: int
) -> None:
    """In a world of ``size``; a node outside it takes a dead member's place."""
    script = SCRIPTS[seed % 2]
    expected = undisturbed(script)
    faults = schedule.draw(random.Random(seed), steps=STEPS, count=3)
    job = cluster.submit(script, world__max=size, job__args=["--pace-seconds", "0.04"])
    revival = strikes.Revival(cluster)
    done = [one for fault in faults for one in strikes.inflict(cluster, job, fault, revival)]
    what = f"seed {seed}: {schedule.shown(faults)}; done: {', '.join(map(str, done))}"
    check(cluster, job, script, expected, what)
    strikes.undo(cluster, revival)
    assert done, what


@pytest.mark.deep
@pytest.mark.parametrize("script", ONE_OF_BOTH)
def test_begun_with_four_and_ended_with_one(
    cluster: Cluster, undisturbed: Undisturbed, script: str
) -> None:
    expected = undisturbed(script)
    job = cluster.submit(script, job__args=["--pace-seconds", "0.1"])

    def stays(step: int) -> bool:
        """Its peers may take it for dead for a moment, on a busy machine."""
        ranks = cluster.wait_whole(job, step)["ranks"]
        return not ranks or "node-2" in {rank["node"] for rank in ranks}

    for step, node in ((3, "node-3"), (6, "node-1"), (9, "node-0")):
        cluster.wait_for("the one that stays", partial(stays, step))
        cluster.kill_node(node)
    status = cluster.wait_whole(job, 11)
    if status["ranks"]:
        assert [rank["node"] for rank in status["ranks"]] == ["node-2"]
    check(cluster, job, script, expected)
    formed = cluster.kinds(job, "world_formed")
    assert len(formed[0]["members"]) == 4
    assert formed[-1]["members"] == ["node-2"]
