"""A node tries a job with another setting, in a process of its own, and keeps nothing of it."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from elasticd.core.words.codec import to_plain
from elasticd.errors import ConfigError, OperationError
from elasticd.preflight.firststeps import StepSeen
from elasticd.preflight.trials import TABLE, Setting, Trial, TrialAsked, TrialSeen
from elasticd.settings.job import JobSpec
from elasticd.shell.control.stepdesk import LEAST_BYTES
from elasticd.shell.control.trialdesk import TrialDesk, is_trial
from elasticd.types import NodeId
from tests.unit.shell.control.test_stepdesk import JOB, ME, OTHER, SPEC, TRAIN, Desk

LOOP = TRAIN.replace('raise SystemExit("it makes a step")', "pass")
LONG = replace(SPEC, train=replace(SPEC.train, steps=1000))
SEEN = Trial(Setting(4), (0.5, 0.5, 0.5), 30, 20, 100, ((8, 0.1),))


class Trials(Desk):
    """As there, of trials."""

    def __init__(self, folder: Path, files: str = "") -> None:
        super().__init__(folder, files=files)
        self.trials = TrialDesk(self.desk)
        asked = to_plain(TrialAsked(Setting(4), 0.1))
        self.wanted = replace(self.wanted, spec={**LONG.to_dict(), TABLE: asked})

    def seen(self, node: NodeId = ME, **changes: Any) -> TrialSeen:
        return asyncio.run(self.trials.told(node, replace(self.wanted, **changes)))


@pytest.mark.process
def test_steps_are_measured_with_that_setting_and_nothing_stays(tmp_path: Path) -> None:
    desk = Trials(tmp_path, LOOP)
    found = desk.seen()
    assert found.trial is not None, found.error
    assert found.trial.setting == Setting(4) and len(found.trial.seconds) >= 3
    assert found.trial.limit_bytes > 0 and not found.trial.failed
    assert desk.left() == []


@pytest.mark.process
def test_a_script_that_fails_there_is_a_trial_that_failed(tmp_path: Path) -> None:
    found = Trials(tmp_path, "raise SystemExit('no such row')").seen()
    assert found.trial is not None and "no such row" in found.trial.failed and not found.error


def test_where_a_job_runs_or_memory_is_short_nothing_is_tried(tmp_path: Path) -> None:
    desk = Trials(tmp_path)
    desk.jobs = [JOB]
    assert desk.seen() == TrialSeen(ME, trains=JOB)
    desk.jobs, desk.free = [], LEAST_BYTES - 1
    assert "1023 MiB of memory are free" in desk.seen().error


@pytest.mark.process
@pytest.mark.timeout(60)
def test_a_job_that_begins_has_the_right_of_way(tmp_path: Path) -> None:
    mark = tmp_path / "runs"
    desk = Trials(tmp_path, f"import time; open({str(mark)!r}, 'w'); time.sleep(1000)")
    desk.desk.trains = lambda: [JOB] if mark.exists() else []
    assert desk.seen() == TrialSeen(ME, trains=JOB) and desk.left() == []


def test_another_node_is_asked(tmp_path: Path) -> None:
    desk = Trials(tmp_path)
    desk.answer = json.dumps(to_plain(TrialSeen(NodeId("somebody"), SEEN))).encode()
    assert desk.seen(OTHER) == TrialSeen(OTHER, SEEN)
    desk.answer = OperationError("other is not connected")
    assert desk.seen(OTHER) == TrialSeen(OTHER, error="other is not connected")


def test_a_version_that_knows_no_trial_is_told_from_one_that_fails(tmp_path: Path) -> None:
    """It finds the table wrong, or passes over it and makes a first step."""
    desk = Trials(tmp_path)
    with pytest.raises(ConfigError) as wrong:
        JobSpec.from_dict(desk.wanted.spec)
    for answer in (StepSeen(OTHER, error=str(wrong.value)), StepSeen(OTHER, gradient="g")):
        desk.answer = json.dumps(to_plain(answer)).encode()
        assert desk.seen(OTHER).older
    desk.answer = json.dumps(to_plain(StepSeen(OTHER, error="no memory"))).encode()
    assert desk.seen(OTHER) == TrialSeen(OTHER, error="no memory")


def test_a_first_step_is_no_trial(tmp_path: Path) -> None:
    desk = Trials(tmp_path)
    assert is_trial(desk.wanted)
    assert not is_trial(replace(desk.wanted, spec=SPEC.to_dict()))
