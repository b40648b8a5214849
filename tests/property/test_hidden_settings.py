"""Whatever is wrong with a job.toml, no error shows what its ``env`` holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticd.errors import ConfigError
from elasticd.settings.job import JobSpec, load
from tests.unit.core.words.drawn import ANYTHING

SECRET = "s3cr3t"
NUMBER = 918_273_645
HELD = st.sampled_from(
    [SECRET, NUMBER, [SECRET], {"A": SECRET}, f"{SECRET}\0", f"{SECRET}" * 1000, float(NUMBER)]
)
NAMES = st.sampled_from(["A", "PYTHONHASHSEED", "", "A=B", "TOKEN"])
BASE = """[job]
name = "a"
entrypoint = "train.py"
{env}
[batch]
global = 2
micro = 1
[train]
steps = 2
"""
ENV = (
    'env = "{S}"', "env = {N}", 'env = ["{S}"]', 'env.A = "{S}', 'env = {{A = "{S}", A = "{S}"}}',
    "env = {{A = {N}}}", 'env.A = "\\{S}"', 'env = {{A = "{S}"', "env.A = {S}",
    'env.A = "{S}"\nenv.A.B = "{S}"', 'env.A.B = "{S}"', 'env.A = """{S}""" {S}',
    'env = {{TMPDIR = "{S}"}}', 'env = {{A = "{S}"}}\npass_env = ["A"]', 'env.A = "{S}\x01"',
)  # fmt: skip
SETS = (
    "job.env.A={N}", "job.env.A={S}", "job.env.A=[{S}", 'job.env.A="{S}', "job.env.A.B={S}",
    "job.env={S}", "job.env={N}", "job.env=[{N}]", "job.env = {{A = {N}}}", 
    "job.env.TMPDIR={S}", 'job."env".A={N}', "job.env.A B={S}", "job . env . A = {N}",
    "job.env.={S}", '"job"."env".TMPDIR={S}', "job={{env={{A='{S}'}}}}",
)  # fmt: skip


def _fill(text: str) -> str:
    return text.format(S=SECRET, N=NUMBER)


def _hidden(error: Any) -> bool:
    return SECRET not in str(error) and str(NUMBER) not in str(error)


@given(st.dictionaries(NAMES, HELD, max_size=3) | HELD, ANYTHING)
def test_a_received_job_is_refused_without_them(env: Any, other: Any) -> None:
    tables = {
        "job": {"name": "a", "entrypoint": "train.py", "env": env, "args": other},
        "batch": {"global": 2, "micro": 1},
        "train": {"steps": 2},
    }
    try:
        JobSpec.from_dict(tables)
    except ConfigError as error:
        assert _hidden(error)


@pytest.mark.parametrize("env", ENV)
def test_a_file_is_refused_without_them(env: str, tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text(BASE.format(env=_fill(env)))
    (tmp_path / "train.py").touch()
    with pytest.raises(ConfigError) as raised:
        load(path)
    assert _hidden(raised.value), raised.value


@pytest.mark.parametrize("assignment", SETS)
@pytest.mark.parametrize("further", ["", "batch.micro=9", "job.nam=x"])
def test_an_assignment_is_refused_without_them(
    assignment: str, further: str, tmp_path: Path
) -> None:
    path = tmp_path / "job.toml"
    path.write_text(BASE.format(env='env = {B = "b"}'))
    (tmp_path / "train.py").touch()
    try:
        load(path, [_fill(assignment), *([further] if further else [])])
    except ConfigError as error:
        assert _hidden(error), error
