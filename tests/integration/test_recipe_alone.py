"""A fine-tuning in one process: what changes its bits, and what must not."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import tinylm

pytestmark = pytest.mark.process


def run(folder: Path, dpo: bool = False, **changed: object) -> str:
    """Train the tiny job, or that of preferences, with some keys changed; returns what it
    prints."""
    pytest.importorskip("mlx_lm", reason="needs elasticd[lm]")
    yaml = pytest.importorskip("yaml")
    usual = {**yaml.safe_load(tinylm.LORA), "learning_rate": 0.001}  # YAML 1.1 reads 1e-3 as text
    lora = json.dumps({**usual, **changed})
    job, rows = (tinylm.JOB, tinylm.completions)
    if dpo:
        job, rows = tinylm.DPO_JOB, tinylm.preferences
    job_file = tinylm.write_job(folder, lora, job, rows)
    done = subprocess.run(
        [sys.executable, "-m", "elasticd.recipes", job_file],
        capture_output=True, text=True, timeout=200, env={**os.environ, "HF_HOME": str(folder)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def adapters(folder: Path) -> bytes:
    return (folder / "output" / "adapters.safetensors").read_bytes()


def test_how_often_it_validates_changes_no_bit(tmp_path: Path) -> None:
    often = run(tmp_path / "often", test=True)
    assert "step 4: validation loss" in often and "test loss" in often
    never = run(tmp_path / "never", val_batches=0, test=True, test_batches=0)
    assert "validation loss" not in never and "test loss" not in never
    text = (tmp_path / "often" / "output" / "losses.jsonl").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    assert [line["step"] for line in lines if "loss" in line] == list(range(1, 13))
    assert [line["step"] for line in lines if "validation_loss" in line] == [4, 8, 12]
    assert adapters(tmp_path / "often") == adapters(tmp_path / "never")


def test_what_is_wrong_with_the_model_is_one_line(tmp_path: Path) -> None:
    pytest.importorskip("mlx_lm", reason="needs elasticd[lm]")
    job_file = tinylm.write_job(tmp_path)
    os.truncate(tmp_path / "model" / "model.safetensors", 1000)
    done = subprocess.run(
        [sys.executable, "-m", "elasticd.recipes", job_file],
        capture_output=True, text=True, timeout=200, env={**os.environ, "HF_HOME": str(tmp_path)},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("elasticd: the model model can't be loaded: model.safetensors: is cut")


def test_fewer_rows_than_a_step_takes_are_told(tmp_path: Path) -> None:
    printed = run(tmp_path, batch_size=40, iters=1, val_batches=0)
    said = "elasticd: train.jsonl has 37 rows to train, and a step takes 40 (batch_size): some are"
    assert printed.count(said) == 1
    assert "several times" not in run(tmp_path / "enough", batch_size=37, iters=1, val_batches=0)


def test_packed_rows_are_trained(tmp_path: Path) -> None:
    """Each step has seen several times as many of them."""
    keys: dict[str, Any] = {"max_seq_length": 256, "steps_per_report": 12, "val_batches": -1}
    plain, packed = run(tmp_path / "a", **keys), run(tmp_path / "b", packing=True, **keys)
    (count,) = re.findall(r"37 rows are packed into (\d+) sequences", packed)
    assert int(count) < 20
    pattern = r"step 12: validation loss ([0-9.]+)"
    (one,), (other,) = (re.findall(pattern, printed) for printed in (plain, packed))
    assert float(other) < float(one)


def test_a_gradient_is_clipped(tmp_path: Path) -> None:
    """To next to nothing, so that plain descent leaves the adapters as they were."""
    import mlx.core as mx

    run(tmp_path, clip_norm=1e-9, optimizer="sgd")
    found = mx.load(str(tmp_path / "output" / "adapters.safetensors"))
    assert isinstance(found, dict)
    added: Any = [mx.abs(array).max() for name, array in found.items() if name.endswith("_b")]
    assert 0 < mx.stack(added).max() < 1e-9


def test_a_model_by_name_is_trained(tmp_path: Path) -> None:
    """From a stand-in for the hub's cache; the adapters say the name."""
    pytest.importorskip("mlx_lm", reason="needs elasticd[lm]")
    repo = tmp_path / "hub" / "models--org--tiny"
    (repo / "refs").mkdir(parents=True)
    (repo / "refs" / "main").write_text("0" * 40)
    tinylm.write_model(repo / "snapshots" / ("0" * 40))
    run(tmp_path, model="org/tiny", val_batches=0)
    said = json.loads((tmp_path / "output" / "adapter_config.json").read_text())
    assert said["model"] == "org/tiny"


def test_of_two_answers_the_chosen_one_is_preferred(tmp_path: Path) -> None:
    printed = run(tmp_path, dpo=True, steps_per_report=1, val_batches=-1, beta=1.0, test=True)
    steps = re.findall(r"^step \d+: loss (\S+), accuracy (\S+), margin (\S+),", printed, re.M)
    losses, accuracies, margins = zip(*(map(float, each) for each in steps), strict=True)
    assert losses[0] == pytest.approx(math.log(2), abs=1e-3)
    assert losses[-1] < 0.5 and accuracies[-1] > 0.8 and margins[-1] > 0.3
    assert "test loss" in printed and "perplexity" not in printed
