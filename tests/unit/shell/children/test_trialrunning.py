"""One trial of ``optimize``: when it is seen that its process has ended, or does nothing more."""

from __future__ import annotations

import contextlib
import os
import resource
import sys
from pathlib import Path
from typing import Any

import pytest

from elasticd import archive
from elasticd.errors import OperationError
from elasticd.preflight.trials import Setting, Trial
from elasticd.shell.children.environment import of_child
from elasticd.shell.children.trialrunning import MOST_LOG_BYTES, TrialRunner

pytestmark = pytest.mark.process

SETTINGS = """
[job]
name = "odd"
entrypoint = "train.py"
python = "{python}"
[batch]
global = 16
micro = 8
[train]
steps = 100
[recovery]
user_code_seconds = {patience}
"""


BEGINS = """echo '{"limit": 1}' > /dev/fd/$4"""


def tried(
    folder: Path,
    does: str,
    patience: float = 3600.0,
    begins: str = BEGINS,
    mode: int = 0o755,
    **more: Any,
) -> Trial:
    """What comes of a process that does that, once it has told that it is a trial."""
    python, job, trials = folder / "python", folder / "job", folder / "trials"
    python.write_text(f"#!/bin/sh\n{begins}\n{does}\n")
    python.chmod(mode)
    for each in (job, trials):
        each.mkdir()
    (job / "train.py").touch()
    path = job / "job.toml"
    path.write_text(SETTINGS.format(python=python, patience=patience))
    spec, packed = archive.of_job(path)
    runner = TrialRunner(spec, packed.data, of_child(os.environ, ""), trials, 1.0, **more)
    found = runner.run(Setting(8))
    assert list(trials.iterdir()) == []
    return found


@pytest.mark.timeout(60)
def test_what_it_has_started_is_not_waited_for(tmp_path: Path) -> None:
    """A worker that reads data, say, and has all that is open in the process."""
    found = tried(tmp_path, "sleep 3000 &\necho the cause >&2\nexit 4")
    assert found.failed == "it ended with status 4: the cause"


@pytest.mark.timeout(60)
def test_a_daemon_with_many_descriptors_runs_a_trial_too(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(2048, hard)), hard))
    with contextlib.ExitStack() as held:
        held.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        while (fd := os.open(os.devnull, os.O_RDONLY)) < 1100:
            held.callback(os.close, fd)
        held.callback(os.close, fd)
        found = tried(tmp_path, "echo the cause >&2\nexit 4")
    assert found.failed == "it ended with status 4: the cause"


@pytest.mark.timeout(60)
def test_a_process_that_tells_nothing_any_more_is_given_up(tmp_path: Path) -> None:
    """It has closed all that was open."""
    closing = "import os, time; os.closerange(3, 1000); time.sleep(3000)"
    found = tried(tmp_path, f"exec {sys.executable} -c '{closing}'", patience=2.0)
    assert "it came to no further step than 0" in found.failed


@pytest.mark.timeout(60)
def test_one_that_takes_too_long_is_given_up_and_one_that_is_in_the_way_ends(
    tmp_path: Path,
) -> None:
    for each in ("late", "stopped"):
        (tmp_path / each).mkdir()
    found = tried(tmp_path / "late", "echo it thinks\nexec sleep 3000", most_seconds=0.5)
    assert found.failed == "it came to no further step than 0: it thinks"
    with pytest.raises(OperationError, match="a job began"):
        tried(tmp_path / "stopped", "exec sleep 3000", stop=lambda: "a job began")


@pytest.mark.timeout(60)
def test_what_it_prints_fills_no_disk(tmp_path: Path) -> None:
    much, log = 2 * MOST_LOG_BYTES, tmp_path / "trials" / "1.log"
    prints = f"head -c {much} /dev/zero\nuntil [ $(wc -c < {log}) -lt {much} ]; do sleep 0.05; done"
    found = tried(tmp_path, f"{prints}\necho the cause >&2\nexit 4")
    assert found.failed == "it ended with status 4: the cause"


def test_what_a_script_makes_goes_however_deep_it_is(tmp_path: Path) -> None:
    makes = "import os\nfor _ in range(1100): os.mkdir('d'); os.chdir('d')"
    found = tried(tmp_path, f'{sys.executable} -c "{makes}"\necho the cause >&2\nexit 4')
    assert found.failed == "it ended with status 4: the cause"


def test_a_script_that_empties_its_folder_is_told_of_all_the_same(tmp_path: Path) -> None:
    found = tried(tmp_path, "echo the cause >&2\nrm -rf ./* ./.[a-z]*\nexit 4")
    assert found.failed == "it ended with status 4: the cause"


def test_a_python_without_elasticd_is_named_with_the_cure(tmp_path: Path) -> None:
    no = "echo \"ModuleNotFoundError: No module named 'mlx'\" >&2\nexit 1"
    found = tried(tmp_path, no, begins="")
    named = f'job.python = "{tmp_path / "python"}" can\'t run elasticd on this node'
    cure = "install elasticd there (ModuleNotFoundError: No module named 'mlx')"
    assert found.failed == f"{named}: {cure}"


def test_and_so_is_one_that_can_not_be_started(tmp_path: Path) -> None:
    with pytest.raises(
        OperationError, match=r"can't be started on this node \(Permission denied\)"
    ):
        tried(tmp_path, "", mode=0o600)
    assert list((tmp_path / "trials").iterdir()) == []
