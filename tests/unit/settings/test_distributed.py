"""The figures of a fixed number of devices, and job.toml's for them."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import elasticd
from elasticd import DistributedConfig
from elasticd.errors import ConfigError
from elasticd.settings.job import load

DOCS = Path(__file__).parents[3] / "docs"
HEAD = '[job]\nname = "mine"\nentrypoint = "train.py"\n[train]\nsteps = 5\n'


def job_of(folder: Path, tables: str, head: str = HEAD) -> Path:
    (folder / "train.py").write_text("")
    path = folder / "job.toml"
    path.write_text(head + tables)
    return path


def test_the_tables_say_what_the_figures_do(tmp_path: Path) -> None:
    config = DistributedConfig(num_devices=4, batch_size_per_device=8, gradient_accumulation=2)
    spec = load(job_of(tmp_path, config.to_toml()))
    assert (spec.world.min, spec.world.max) == (1, 4)
    assert (spec.batch.global_, spec.batch.micro, spec.grains) == (64, 8, 8)
    assert config.global_batch == 64


@given(st.integers(1, 100), st.integers(1, 1000), st.integers(1, 100))
def test_there_and_back(devices: int, samples: int, accumulation: int) -> None:
    config = DistributedConfig(devices, samples, accumulation)
    with tempfile.TemporaryDirectory() as folder:
        assert DistributedConfig.from_job(job_of(Path(folder), config.to_toml())) == config


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ((0, 8), "num_devices: must be at least 1, not 0"),
        ((1025, 8), "num_devices: must be at most 1024, not 1025"),
        ((4, 2.5), r"batch_size_per_device: must be a whole number, not 2\.5"),
        ((4, 8, 0), "gradient_accumulation: must be at least 1, not 0"),
        ((1000, 1, 100), "gradient_accumulation: cuts the global batch into 100000 grains"),
        ((1000, 2**22), "batch_size_per_device: batch.global must be at most 2147483647"),
    ],
)
def test_figures_that_no_job_can_have(words: tuple[Any, ...], why: str) -> None:
    with pytest.raises(ConfigError, match=f"elasticd.DistributedConfig: {why}"):
        DistributedConfig(*words)


@pytest.mark.parametrize(
    ("tables", "line", "why"),
    [
        ("[world]\nmax = 3\n[batch]\nglobal = 64\nmicro = 8\n", 9, "batch.global: is 64, no mul"),
        ("[world]\nmax = 9\n[batch]\nglobal = 64\nmicro = 8\n", 9, "batch.global: is 64, no mul"),
        ("[batch]\nglobal = 64\nmicro = 8\n", 1, "world.max: is 0, every node: say num_devices="),
        ("[batch]\nglobel = 64\nmicro = 8\n", 7, "batch.globel: unknown key"),
    ],
)
def test_a_job_that_they_cannot_say_is_named_by_line(
    tmp_path: Path, tables: str, line: int, why: str
) -> None:
    path = job_of(tmp_path, tables)
    with pytest.raises(ConfigError, match=f"{re.escape(str(path))}:{line}: {why}"):
        DistributedConfig.from_job(path)


def test_a_job_for_every_node_is_told_how_many_these_are(tmp_path: Path) -> None:
    path = job_of(tmp_path, "[batch]\nglobal = 64\nmicro = 8\n")
    assert DistributedConfig.from_job(path, num_devices=2) == DistributedConfig(2, 8, 4)
    with pytest.raises(ConfigError, match="no multiple of 3 devices"):
        DistributedConfig.from_job(path, num_devices=3)
    with pytest.raises(ConfigError, match="num_devices: must be at least 1, not -1"):
        DistributedConfig.from_job(path, num_devices=-1)
    with pytest.raises(ConfigError, match='num_devices: must be a whole number, not "2"'):
        DistributedConfig.from_job(path, num_devices="2")  # type: ignore[arg-type]


def test_a_plain_job_has_no_such_figures(tmp_path: Path) -> None:
    head = '[job]\nname = "mine"\nmode = "plain"\nentrypoint = "train.py"\n'
    path = job_of(tmp_path, "[world]\nmax = 4\n", head)
    with pytest.raises(ConfigError, match=r"job\.toml:3: job\.mode: is plain"):
        DistributedConfig.from_job(path)


def test_the_example_of_the_docs(capsys: pytest.CaptureFixture[str]) -> None:
    text = (DOCS / "writing-jobs.md").read_text()
    text = text[text.index("## From a fixed number of devices") :]
    example = re.search(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    shown = re.search(r"^```toml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert example is not None and shown is not None
    exec(example[1], {"elasticd": elasticd})
    assert capsys.readouterr().out.strip() == shown[1].strip()
