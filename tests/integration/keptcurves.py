"""What the nodes of a cluster have kept of a job's curves: each looks for itself, once a second."""

from __future__ import annotations

from elasticd.shell.storage.losses import FILE, FOLDER, JobPast
from elasticd.types import JobId
from tests.integration.cluster import Cluster


def wait_kept(
    cluster: Cluster, job: str, name: str | None = None, span: int = 0
) -> dict[str, tuple[int, int]]:
    """By node the first and the last step of the curve on its disk, once each living one has such,
    ``span`` steps apart. ``name``: of this value of the script; None: of the loss."""

    def look() -> dict[str, tuple[int, int]] | None:
        found = {}
        for node in cluster.living():
            past = JobPast.read(cluster.home / node / FOLDER / JobId(job) / FILE)
            points = past.curve.points if name is None else past.curve.told().get(name, [])
            if not points or points[-1][0] - points[0][0] < span:
                return None
            found[node] = points[0][0], points[-1][0]
        return found

    return cluster.wait_for("a curve on every disk", look)
