"""A short run of tests/checkpoint/soak.py: kills and power cuts while every step is stored."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.checkpoint.soak import Soak, Tally
from tests.integration.cluster import Cluster

pytestmark = pytest.mark.process

STEPS = 80


@pytest.mark.deep
def test_kills_and_power_cuts_lose_no_checkpoint(
    make_cluster: Callable[[Path, int], Cluster], tmp_path: Path
) -> None:
    tally = Tally()
    with make_cluster(tmp_path, 3) as cluster:
        Soak(cluster, "short", tally, STEPS).job(["power", "every trainer", "one trainer"])
    assert not tally.violations, tally.violations
    assert tally.kills.total() == 3, "it was over before the last"
    assert tally.judged == 1 and tally.restores >= 1
