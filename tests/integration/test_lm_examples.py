"""The examples without a script, in small: on a tiny model in place of theirs, a few steps."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import tinylm

pytestmark = pytest.mark.process

EXAMPLES = Path(__file__).parents[2] / "elasticd" / "examples"
COMMIT = "0" * 40


def train(name: str, home: Path, bits: int = 0, model: str = "bf16") -> tuple[str, Path]:
    """Train an example with a stand-in for its model in the hub's cache; what it prints, and its
    outputs."""
    pytest.importorskip("mlx_lm", reason="needs elasticd[lm]")
    folder = Path(shutil.copytree(EXAMPLES / name, home / name))
    (config,) = folder.glob("*.yaml")
    said = config.read_text()
    said = re.sub(r"^iters: \d+", "iters: 6", said, flags=re.M)
    said = re.sub(r"^(steps_per_eval|save_every): \d+", r"\1: 3", said, flags=re.M)
    config.write_text(re.sub(r"^num_layers: \d+", "num_layers: -1", said, flags=re.M))
    cached = home / "hub" / f"models--mlx-community--Qwen3-0.6B-{model}"
    (cached / "refs").mkdir(parents=True)
    (cached / "refs" / "main").write_text(COMMIT)
    tinylm.write_model(cached / "snapshots" / COMMIT, bits=bits)
    done = subprocess.run(
        [sys.executable, "-m", "elasticd.recipes", folder / "job.toml"],
        capture_output=True, text=True, timeout=200, env={**os.environ, "HF_HOME": str(home)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    written = {file.name for file in (folder / "output").iterdir()}
    assert {"0000006_adapters.safetensors", "best_adapters.safetensors"} <= written
    return done.stdout, folder / "output"


def mlx_lm(program: str, *words: str | Path) -> str:
    """What one of its programs prints."""
    done = subprocess.run(
        [sys.executable, "-m", "mlx_lm", program, *words],
        capture_output=True, text=True, timeout=200, env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.deep
def test_lora_is_fused_and_asked(tmp_path: Path) -> None:
    """By mlx-lm's own programs. The model alone says something else."""
    printed, written = train("lora", tmp_path)
    assert "(lora)" in printed and "step 6: validation loss" in printed
    (model,) = tmp_path.glob("hub/*/snapshots/*")
    fused = tmp_path / "fused"
    mlx_lm("fuse", "--model", model, "--adapter-path", written, "--save-path", fused)
    asked = ("--prompt", "one two", "--max-tokens", "12", "--verbose", "False")
    said = mlx_lm("generate", "--model", model, "--adapter-path", written, *asked)
    assert said == mlx_lm("generate", "--model", fused, *asked)
    import mlx.core as mx
    from mlx_lm.utils import load

    prompt = mx.array([[1, 2, 3, 4, 5]])
    alone = load(str(model))[0](prompt)
    tuned = load(str(model), adapter_path=str(written))[0](prompt)
    assert not mx.allclose(tuned, alone, atol=1e-4).item()
    assert mx.allclose(load(str(fused))[0](prompt), tuned, atol=1e-5).item()


def test_qlora_adapters_load_in_mlx_lm(tmp_path: Path) -> None:
    printed, written = train("qlora", tmp_path, bits=4, model="4bit")
    assert "64 rows are packed into" in printed
    from mlx_lm.utils import load

    (folder,) = tmp_path.glob("hub/*/snapshots/*")
    model = load(str(folder), adapter_path=str(written))[0]
    assert type(model.layers[0].self_attn.q_proj.linear).__name__ == "QuantizedLinear"


def test_dpo(tmp_path: Path) -> None:
    printed, _ = train("dpo", tmp_path, bits=4, model="4bit")
    assert re.search(r"step 6: loss \S+, accuracy \S+, margin", printed)
