"""What a step is made of, as commands show it."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from elasticd.cli.monitors.keys import strokes
from elasticd.cli.monitors.picture import picture
from elasticd.cli.monitors.scene import Scene
from elasticd.cli.performance import told_parts
from elasticd.types import STEP_PARTS

from .conftest import STATUS
from .test_commands import Ctl, Daemon

JOB = "byte-lm-1-k3f9"
PARTS = dict(zip(STEP_PARTS, (0.1, 0.2, 0.3, 0.4, 0.5, 0.0, 0.05), strict=True))


@pytest.fixture
def told() -> dict[str, Any]:
    found = copy.deepcopy(STATUS)
    found["jobs"][0]["ranks"][0]["seconds"] = PARTS  # the other one is of an earlier version
    return found


def test_status_shows_each_rank(ctl: Ctl, home: Path, daemon: Daemon, told: dict[str, Any]) -> None:
    daemon(home, {"status": told})
    code, out, _ = ctl("status", "--performance", "--home", home)
    title, head, first, second = out.splitlines()
    assert code == 0 and title == f"{JOB}, step 120, seconds a step:"
    assert head.lower().split() == ["rank", "node", *STEP_PARTS, "step"]
    shown = [f"{PARTS[part]:.4f}" for part in STEP_PARTS]
    assert first.split() == ["0", "node-0", *shown, "1.5500"]
    assert second.split() == ["1", "node-2", *"--------"]


def test_a_cluster_without_ranks(ctl: Ctl, home: Path, daemon: Daemon) -> None:
    daemon(home, {"status": STATUS | {"jobs": []}})
    assert ctl("status", "--performance", "--home", home)[1] == "no job has ranks now\n"


def test_the_monitor_shows_them_in_place_of_shares(told: dict[str, Any]) -> None:
    def text(performance: bool = False) -> str:
        lines = picture(Scene(told), JOB, 120, performance=performance)
        return "\n".join("".join(part for part, _ in line) for line in lines)

    assert "0.4000" in text(performance=True) and "SHARE" not in text(performance=True)
    assert "SHARE" in text() and "0.4000" not in text()
    assert strokes(b"p") == ["performance"]


@pytest.mark.parametrize("said", [None, 7, {}, [], {"compute": "x"}, {"compute": None}])
def test_nothing_that_a_daemon_says_breaks_it(said: object) -> None:
    assert not told_parts({"seconds": said})
