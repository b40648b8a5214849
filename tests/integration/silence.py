"""What a busy machine does to a cluster by itself: a daemon that it doesn't let run for 1.5 s is
lost to the others. That is a fault, and a recovery if the node was in a world.

No test has asked for it, and each has to bear it. Where nobody was silent nothing is allowed but
what the test did.
"""

from __future__ import annotations

from typing import Any

from tests.integration.cluster import ENDED, Cluster


def silent(cluster: Cluster, job: str, *killed: str) -> list[dict[str, Any]]:
    """The faults of daemons that lived and were not heard: not those of nodes that were killed."""
    return [event for event in cluster.unheard(job) if event["node"] not in killed]


def asked_for(cluster: Cluster, job: str, *killed: str) -> list[dict[str, Any]]:
    """The other faults."""
    unasked = silent(cluster, job, *killed)
    return [event for event in cluster.faults(job) if event not in unasked]


def times(cluster: Cluster, job: str, wanted: int, *killed: str) -> range:
    """How often there may be something that the test did ``wanted`` times: once more for each
    silence."""
    return range(wanted, wanted + len(silent(cluster, job, *killed)) + 1)


def wait_all(cluster: Cluster, job: str, step: int, ranks: int) -> dict[str, Any]:
    """As ``Cluster.wait_whole``, once there are so many ranks: one that was silent comes back."""

    def look() -> dict[str, Any] | None:
        status = cluster.wait_whole(job, step)
        return status if len(status["ranks"]) == ranks or status["state"] in ENDED else None

    return cluster.wait_for(f"{ranks} ranks at step {step} of {job}", look)
