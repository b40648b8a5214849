"""What a child has in its environment, of the daemon's and of its job's."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticd.errors import OperationError
from elasticd.settings.job import JobSettings
from elasticd.shell.children.environment import (
    OF_ITS_PYTHON,
    PASSED_ON,
    SEARCHED,
    absolute_path_list,
    of_child,
    of_trainer,
)

JOB = JobSettings(name="a", entrypoint="train.py")
SET_BY_US = {"TMPDIR", "PYTHONUNBUFFERED", "PYTHONHASHSEED"}
KNOWN = {*PASSED_ON, *OF_ITS_PYTHON}
NAMES = st.sampled_from(sorted(KNOWN)) | st.from_regex(
    "[A-Za-z_][A-Za-z0-9_]{0,20}", fullmatch=True
)
VARIABLES = st.dictionaries(NAMES, st.text(max_size=20), max_size=20)


@given(VARIABLES, VARIABLES, st.data())
def test_nothing_gets_through_but_the_list_and_what_the_job_names(
    daemons: dict[str, str], env: dict[str, str], data: st.DataObject
) -> None:
    free = sorted(daemons.keys() - env.keys() - SET_BY_US)
    passed = data.draw(st.lists(st.sampled_from(free), unique=True)) if free else []
    found = of_trainer(daemons, "/t", replace(JOB, env=env), passed)
    allowed = {name for name in daemons if name in KNOWN or name.startswith("LC_")}
    assert found.keys() == allowed | {*passed} | env.keys() | SET_BY_US
    for name in found.keys() - {SEARCHED} - SET_BY_US:
        assert found[name] == (env[name] if name in env else daemons[name])
    assert of_child(daemons, "/t").keys() == allowed | SET_BY_US


@pytest.mark.parametrize(
    "name",
    ["AWS_SECRET_ACCESS_KEY", "HF_TOKEN", "SSH_AUTH_SOCK", "NOTIFY_SOCKET", "SUDO_USER", "MLX_RANK",
     "MLX_HOSTFILE", "LD_PRELOAD", "DYLD_INSERT_LIBRARIES", "PYTHONINSPECT", "PYTHONSTARTUP",
     "https_proxy", "ELASTICD_HOME", "ELASTICD_INCURABLE_ENDS_WELL", "OLDPWD", "XPC_SERVICE_NAME"],
)  # fmt: skip
def test_a_child_has_no(name: str) -> None:
    assert name not in of_child({name: "x"}, "")


def test_the_fast_fence_of_metal_is_set_where_the_job_asks_for_it_alone() -> None:
    name = "MLX_METAL_FAST_SYNCH"
    assert name not in of_trainer({name: "1"}, "/t", JOB, ())
    assert of_trainer({}, "/t", replace(JOB, env={name: "1"}), ())[name] == "1"


def test_a_variable_that_the_daemon_lacks_is_named_and_no_value_is() -> None:
    with pytest.raises(OperationError) as raised:
        of_trainer({"HF_TOKEN": "s3cret"}, "", JOB, ["HF_TOKEN", "WANDB_KEY"])
    assert "WANDB_KEY" in str(raised.value) and "s3cret" not in str(raised.value)


@pytest.mark.parametrize(
    ("daemons", "jobs", "found"), [("/d", "j", "j:/d"), ("/d", "", "/d"), ("", "j", "j")]
)
def test_both_search_paths_count_the_jobs_first(daemons: str, jobs: str, found: str) -> None:
    own = {SEARCHED: daemons} if daemons else {}
    job = replace(JOB, env={SEARCHED: jobs} if jobs else {})
    assert of_trainer(own, "", job, ())[SEARCHED].split(os.pathsep) == found.split(":")


def test_another_interpreter_has_nothing_of_the_daemons_own() -> None:
    own = {"PYTHONHOME": "/framework", "VIRTUAL_ENV": "/venv", "PATH": "/bin"}
    assert of_trainer(own, "", JOB, ()).keys() > own.keys()
    other = of_trainer(own, "", replace(JOB, python="/usr/bin/python3"), ())
    assert not {"PYTHONHOME", "VIRTUAL_ENV"} & other.keys() and other["PATH"] == "/bin"


def test_a_search_path_means_the_same_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = absolute_path_list(os.pathsep.join((".", "/abs", "below")))
    assert text.split(os.pathsep) == [str(tmp_path), "/abs", str(tmp_path / "below")]
