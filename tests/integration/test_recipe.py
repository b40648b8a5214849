"""A fine-tuning without a script, on real daemons: kills change no bit of what mlx-lm is given."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from elasticd.cli.submit import prepare
from tests import tinylm
from tests.integration.cluster import Cluster

pytestmark = pytest.mark.process

STEPS = 120
"""None of them takes long: some are left when it is seen that it has come to the first."""
LORA = f"""\
model: model
data: data
test: true
num_layers: -1
optimizer: adamw
optimizer_config: {{adamw: {{weight_decay: 0.1}}}}
lr_schedule: {{name: cosine_decay, arguments: [1e-3, {STEPS}], warmup: 10}}
batch_size: 8
iters: {STEPS}
seed: 3
steps_per_eval: 30
save_every: 25
mask_prompt: true
lora_parameters: {{rank: 4, dropout: 0.1}}
"""
BRIEF = ("train.steps=20", 'recovery.spare="none"')
"""Where no process dies: a trainer that imports mlx-lm is seconds of a processor."""
WRITTEN = ["0000025_adapters.safetensors", "0000050_adapters.safetensors"]
WRITTEN += ["adapter_config.json", "adapters.safetensors", "best_adapters.safetensors"]


def test_kills_change_no_bit_of_the_adapters(cluster: Cluster, tmp_path: Path) -> None:
    """Other kinds of fine-tuning, and of kills: test_everyjob.py."""
    pytest.importorskip("mlx_lm", reason="needs elasticd[lm]")
    job_file = tinylm.write_job(tmp_path / "tune", LORA)
    job = cluster.client.submit(*prepare(job_file, ["world.max=3"]))
    cluster.wait_step(job, 5)
    cluster.wait_for("rank 0", lambda: cluster.kill_trainer(job, 0))
    status = cluster.wait_whole(job, 22)
    cluster.kill_node(status["ranks"][1]["node"])
    ended = cluster.wait_end(job)
    assert ended["exact"] and ended["recoveries"] >= 2
    out = tmp_path / "out"
    cluster.command("outputs", job, "--out", out)
    undisturbed = _alone(job_file)
    for name in WRITTEN:
        assert (out / name).read_bytes() == (undisturbed / name).read_bytes(), name
    _generate(tmp_path / "tune" / "model", out)
    for node in cluster.nodes:
        for shard in (cluster.home / node / "checkpoints" / job).glob("*/*.safetensors"):
            assert not _stored(shard) - {"lora_a", "lora_b", "optimizer"}, shard


def _stored(shard: Path) -> set[str]:
    """Of what a shard has anything: adapters, the optimizer, or other parameters by name."""
    import mlx.core as mx

    names: Any = mx.load(str(shard))
    mine = [name for name in names if not name.startswith(("user/", "attributes/"))]
    return {"optimizer" if n.startswith("optimizer/") else n.rpartition(".")[2] for n in mine}


@pytest.mark.skipif(not Path("/proc/self/cwd").exists(), reason="needs /proc")
def test_a_job_goes_on_without_a_node_that_lacks_the_model(
    cluster: Cluster, tmp_path: Path
) -> None:
    """One path leads to another folder on each node of this machine: by a trainer's own clone."""
    pytest.importorskip("mlx_lm", reason="needs elasticd[lm]")
    job_file = tinylm.write_job(tmp_path / "tune", LORA)
    *have, lacks = cluster.nodes
    for node in have:
        shutil.copytree(tmp_path / "tune" / "model", cluster.home / node / "models" / "tiny")
    here = "/proc/self/cwd/../../../models/tiny"  # clones/JOB/N lies in a node's home
    job = cluster.client.submit(*prepare(job_file, [f"recipe.config.model={here}", *BRIEF]))
    cluster.wait_end(job)
    (left_out,) = cluster.kinds(job, "node_unfit")
    assert left_out["node"] == lacks
    assert left_out["reason"].endswith(f"the model folder {here} is not on this node")


def _write_other_last_row(rows: Path) -> None:
    other = {"prompt": "one", "completion": "other"}
    tinylm.write_rows(rows / "train.jsonl", [*tinylm.completions(37, 37)[:-1], other])


@pytest.mark.skipif(not Path("/proc/self/cwd").exists(), reason="needs /proc")
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_write_other_last_row, "data/train.jsonl:37 is "),
        (lambda rows: (rows / "valid.jsonl").unlink(), "valid.jsonl: none on "),
    ],
)
def test_a_node_with_other_data_is_left_out(
    change: Callable[[Path], None], said: str, cluster: Cluster, tmp_path: Path
) -> None:
    """One row of 37, the last, is different on it; or it has no rows to validate with."""
    pytest.importorskip("mlx_lm", reason="needs elasticd[lm]")
    job_file = tinylm.write_job(tmp_path / "tune", LORA)
    for node in cluster.nodes:
        rows = cluster.home / node / "rows"
        shutil.copytree(tmp_path / "tune" / "data", rows, dirs_exist_ok=True)
    other = cluster.nodes[1]
    change(cluster.home / other / "rows")
    here = "/proc/self/cwd/../../../rows"
    words = [f"recipe.config.data={here}", *BRIEF]
    job = cluster.client.submit(*prepare(job_file, words))
    cluster.wait_end(job)
    (left_out,) = cluster.kinds(job, "node_unfit")
    assert left_out["node"] == other and said in left_out["reason"]


@pytest.mark.skipif(not Path("/proc/self/cwd").exists(), reason="needs /proc")
def test_a_node_with_another_base_is_left_out(cluster: Cluster, tmp_path: Path) -> None:
    """Of its model one frozen value is another."""
    pytest.importorskip("mlx_lm", reason="needs elasticd[lm]")
    import mlx.core as mx

    job_file = tinylm.write_job(tmp_path / "tune", LORA)
    for node in cluster.nodes:
        shutil.copytree(tmp_path / "tune" / "model", cluster.home / node / "bases" / "tiny")
    other = cluster.nodes[1]
    file = cluster.home / other / "bases" / "tiny" / "model.safetensors"
    weights: Any = mx.load(str(file))
    weights["model.norm.weight"][5] = 1.5
    mx.save_safetensors(str(file), weights)
    here = "/proc/self/cwd/../../../bases/tiny"
    words = [f"recipe.config.model={here}", *BRIEF]
    job = cluster.client.submit(*prepare(job_file, words))
    cluster.wait_end(job)
    (left_out,) = cluster.kinds(job, "node_unfit")
    assert left_out["node"] == other
    assert left_out["reason"].startswith("base/model.safetensors is ")


def test_nodes_in_other_time_zones_write_one_day(
    make_cluster: Callable[[Path, int], Cluster], tmp_path: Path
) -> None:
    """Where the template writes it: the day is not the same for both at any time."""
    pytest.importorskip("mlx_lm", reason="needs elasticd[lm]")
    rezoned = tinylm.JOB.replace("[recipe]", 'pass_env = ["TZ"]\n[recipe]')
    job_file = tinylm.write_job(tmp_path / "tune", LORA, rezoned)
    tinylm.write_day(tmp_path / "tune" / "model")
    with make_cluster(tmp_path / "cluster", 2) as cluster:
        for node, place in zip(cluster.nodes, tinylm.NEVER_ON_ONE_DAY, strict=True):
            own = cluster.home / node / "secrets.env"
            own.write_text(f"TZ={place}\n")
            own.chmod(0o600)
        job = cluster.client.submit(*prepare(job_file, ["world.min=2", *BRIEF]))
        assert cluster.wait_end(job)["exact"]
        assert not cluster.kinds(job, "node_unfit")


def test_a_model_that_no_node_has_fails_the_job(cluster: Cluster, tmp_path: Path) -> None:
    pytest.importorskip("mlx_lm", reason="needs elasticd[lm]")
    job_file = tinylm.write_job(tmp_path / "tune", LORA)
    job = cluster.client.submit(*prepare(job_file, ["recipe.config.model=/nowhere/model"]))
    ended = cluster.wait_end(job, "failed")
    assert "the model folder /nowhere/model is not on this node" in ended["reason"]


def _alone(job_file: Path) -> Path:
    done = subprocess.run(
        [sys.executable, "-m", "elasticd.recipes", job_file],
        capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert f"step {STEPS}: loss" in done.stdout and "test loss" in done.stdout
    return job_file.parent / "output"


def _generate(model: Path, adapters: Path) -> None:
    """mlx-lm takes the adapters, and they say something else than the model alone."""
    import mlx.core as mx
    from mlx_lm import generate
    from mlx_lm.utils import load

    tuned, tokenizer = load(str(model), adapter_path=str(adapters))[:2]
    prompt = mx.array([tokenizer.encode("one two")])
    assert not mx.allclose(tuned(prompt), load(str(model))[0](prompt), atol=1e-3).item()
    assert isinstance(generate(tuned, tokenizer, prompt="one", max_tokens=1), str)
