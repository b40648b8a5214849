"""A running daemon under a rain of frames; the soak of tests/fuzz sends far more."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.fuzz.soak import besieged
from tests.integration.cluster import STEPS, Cluster

pytestmark = pytest.mark.process

FRAMES = 2000


def test_frames_that_nobody_sends_change_nothing(
    cluster: Cluster, undisturbed: Callable[[str], str]
) -> None:
    expected = undisturbed("high.py")
    wrong = besieged(cluster, expected, FRAMES, seed=3, steps=STEPS, pace_seconds=0.05)
    assert not wrong, cluster.report("; ".join(wrong))
