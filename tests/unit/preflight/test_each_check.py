"""Each check of the preflight has a case in which it doesn't pass, and says the cure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from elasticd.preflight.firststeps import StepSeen, judged_steps
from elasticd.preflight.jobs import judged_job, judged_world
from elasticd.preflight.links import LinkSeen, judged_links
from elasticd.preflight.needs import JobNeeds
from elasticd.preflight.nodes import CheckResult, answers
from elasticd.preflight.seen import NodeUnseen
from elasticd.preflight.speeds import SpeedSeen, judged_speeds
from elasticd.types import NodeId
from tests.unit.preflight import test_jobs, test_nodes

A = NodeId("a")
SAYS = (Path(__file__).parents[3] / "docs/operating.md").read_text()
BESIDE: dict[str, Callable[[], Iterable[CheckResult]]] = {
    "answers": lambda: answers([], [NodeUnseen(A, reason="nothing came for 20 s")]),
    "speed": lambda: judged_speeds([SpeedSeen(A, error="MLX is not there")], 0.0),
    "link": lambda: judged_links([LinkSeen(A, NodeId("b"), "10.0.0.2", error="refused")]),
    "gradients": lambda: judged_steps([StepSeen(A, error="it ends")], exact=False),
    "world": lambda: judged_world(JobNeeds("lm", least=2), [], set()),
}
"""What is not judged by a table of checks."""


def named_in_the_docs() -> set[str]:
    part = SAYS.partition("## Before a job runs")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ((?:`[a-z-]+`(?:, )?)+) \|", part, re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`([a-z-]+)`", row)}


def test_every_check_has_a_case_in_which_it_does_not_pass() -> None:
    cases = {*BESIDE, "role", "clock", *(odd[0] for odd in (*test_nodes.ODD, *test_jobs.ODD))}
    assert cases == named_in_the_docs()


@pytest.mark.parametrize("name", BESIDE)
def test_what_is_not_well_is_said_with_the_cure(name: str) -> None:
    wrong = [each for each in BESIDE[name]() if each.verdict != "pass"]
    assert wrong and all(each.check == name and each.value and each.cure for each in wrong)


def test_a_node_that_is_drained_is_told_how_it_is_not() -> None:
    (drained,) = test_jobs.seen(test_jobs.WELL)
    found = judged_job(test_jobs.NEEDS, [replace(drained, draining=True)])
    (role,) = [each for each in found if each.check == "role"]
    assert role.verdict == "warn" and role.cure == f"elasticctl undrain {drained.node}"
