"""When nobody lives who knew how far a job had come, its steps are still counted as lost."""

from __future__ import annotations

import pytest

from elasticd.core.taking_part.elastic import Elastic
from elasticd.types import JobId

from .cluster import Cluster, JobShape, Setup
from .faults import Injector
from .ring import Arrival, Ring
from .run import simulate
from .scripts import at_step, newest
from .test_sim import job_events, passes
from .trainer import Trainer

JOB = JobId("job1-1-abcd")


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("power", [False, True], ids=["processes die", "power fails"])
def test_the_whole_cluster_dies_and_says_what_was_lost(power: bool, seed: int) -> None:
    reached: list[int] = []

    def strike(cluster: Cluster, injector: Injector) -> None:
        nodes = [host.node for host in cluster.living() if host.node is not None]
        reached.append(max(node.members.by_job[JOB].reports.committed for node in nodes))
        assert reached[0] >= newest(cluster) - 1, "at most the last step's message is on its way"
        for host in cluster.hosts.values():
            host.crash(power)
            cluster.after(1.0, host.start)

    setup = Setup(seed=seed, jobs=(JobShape(steps=60, every=20),))
    result = passes(simulate(setup, script=at_step(33, strike)))
    (found,) = job_events(result, "recovery_finished")
    assert found["rung"] == "restore"
    lost = reached[0] - found["resume_step"]
    # A power cut takes the marks, which are never synced, and leaves what nobody can know of.
    assert found["lost_steps"] == (0 if power else lost)
    assert lost >= 12
    node = result.cluster.living()[0].node
    assert node is not None and node.job_status(JOB)["lost_steps"] == found["lost_steps"]


@pytest.mark.parametrize("seed", range(4))
def test_a_step_that_one_member_alone_had_is_not_lost_with_it(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ring breaks when one trainer has the sums of a step and no other has. That one dies in the
    next world, before it has given them to anybody: the step was never committed."""
    owner: list[Arrival] = []

    def deliver_to_one(ring: Ring, arrival: Arrival, lucky: bool) -> None:
        elsewhere = bool(owner) and owner[0].reducer.ring is not ring
        if elsewhere or not arrival.share or arrival.point.step < 10:
            arrival.done()
        elif not owner:
            owner.append(arrival)
            arrival.done()
            for reducer in ring.places.values():
                reducer.kill()

    def script(cluster: Cluster, injector: Injector) -> None:
        cluster.when(enters_again, lambda: trainer().kill())

    def trainer() -> Trainer:
        found = owner[0].reducer.trainer
        assert found is not None
        return found

    def enters_again() -> bool:
        """The owner is in a world that starts from the step, and that is not formed."""
        node = trainer().host.node if owner else None
        if node is None:
            return False
        part = node.members.by_job[JOB].part
        assert isinstance(part, Elastic)
        place = part.place
        return place is not None and not place.formed and place.world.step > owner[0].point.step

    monkeypatch.setattr(Ring, "_deliver", deliver_to_one)
    result = passes(simulate(Setup(seed=seed, jobs=(JobShape(steps=30),)), script=script))
    assert owner and not trainer().alive
    lost = [found["lost_steps"] for found in job_events(result, "recovery_finished")]
    assert lost and not any(lost)
    node = result.cluster.living()[0].node
    assert node is not None and node.job_status(JOB)["lost_steps"] == 0
