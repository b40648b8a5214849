"""The jobs that people have, each broken in all ways in one run: a trainer, a reducer, the node of
main and everything at once are killed. It ends with the bits and the losses that it has alone.

Each of the library's examples with a script, in small; and recipes, on a tiny model. That plain
jobs survive the same is test_plain.py's.
"""

from __future__ import annotations

import json
import random
import shutil
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests import tinylm
from tests.gallery.alone import judge_alone, run_alone
from tests.gallery.blows import KINDS, draw
from tests.gallery.cards import Card, written
from tests.gallery.exhibit import NODES, judge, run_on
from tests.integration.cluster import Cluster

pytestmark = [pytest.mark.process, pytest.mark.deep]

EXAMPLES = Path(__file__).parents[2] / "elasticd" / "examples"
STEPS: dict[str, Any] = {"train.steps": 24, "checkpoint.every_steps": 5}
SMALL: dict[str, Any] = {**STEPS, "batch.global": 16, "batch.micro": 4}
LORA = """\
model: model
data: data
num_layers: -1
fine_tune_type: {kind}
learning_rate: 1e-3
batch_size: 8
iters: 24
steps_per_eval: 6
save_every: 7
mask_prompt: true
lora_parameters: {{rank: 4, dropout: 0.1}}
"""
PACKED = """\
packing: true
max_seq_length: 128
grad_checkpoint: true
clip_norm: 0.5
optimizer: adamw
optimizer_config: {adamw: {weight_decay: 0.1}}
lr_schedule: {name: cosine_decay, arguments: [1e-3, 24], warmup: 3}
"""
ADAPTERS = ("0000021_adapters.safetensors", "adapters.safetensors", "best_adapters.safetensors")


@dataclass(frozen=True)
class Example(Card):
    """One of the library's, with fewer steps."""

    @property
    def all_settings(self) -> dict[str, Any]:
        tables = tomllib.loads((EXAMPLES / self.name / "job.toml").read_text())
        said = {f"{table}.{key}": v for table, keys in tables.items() for key, v in keys.items()}
        return {**said, **SMALL, **self.settings}

    def lay_out(self, folder: Path) -> Path:
        shutil.copytree(
            EXAMPLES / self.name, folder, ignore=shutil.ignore_patterns("__pycache__", "output")
        )
        (folder / "job.toml").write_text(written(self.all_settings))
        return folder / "job.toml"


@dataclass(frozen=True)
class Recipe(Card):
    """A fine-tuning without a script; ``bits`` of its base, 0: those of bfloat16 or float32."""

    config: str = ""
    job: str = tinylm.JOB
    rows: Callable[[int, int], Iterable[Mapping[str, Any]]] = field(default=tinylm.completions)
    bits: int = 0

    @property
    def all_settings(self) -> dict[str, Any]:
        return STEPS

    def lay_out(self, folder: Path) -> Path:
        return tinylm.write_job(folder, self.config, self.job, self.rows, self.bits)

    def command(self, job: Path) -> list[str | Path]:
        return ["-m", "elasticd.recipes", job]


RECIPES = (
    Recipe("lora", "LoRA", config=LORA.format(kind="lora")),
    Recipe("dora", "DoRA, compiled", config=LORA.format(kind="dora") + "compile: true\n"),
    Recipe(
        "qlora", "LoRA of a model of 4 bits, with packed rows, less memory and a schedule",
        config=LORA.format(kind="lora") + PACKED, bits=4,
    ),
    Recipe("full", "all weights of the last layers", config=LORA.format(kind="full")),
    Recipe(
        "dpo", "preferences, of a model of 6 bits", config=LORA.format(kind="lora"),
        job=tinylm.DPO_JOB, rows=tinylm.preferences, bits=6,
    ),
)  # fmt: skip


def broken(cluster: Cluster, card: Card, folder: Path, kernels: Path) -> str:
    """Run it alone and through all kills, and compare; the job's id."""
    alone = run_alone(card, folder / "alone", kernels)
    assert not judge_alone(card, alone)
    blows = draw(random.Random(card.name), card.steps, NODES, KINDS)
    ended = run_on(cluster, card, folder / "killed", blows, kernels)
    wrong = judge(card, alone, ended)
    assert not wrong, cluster.report("; ".join(wrong))
    assert len(ended.struck) == len(KINDS), cluster.report(f"only {ended.struck} were there")
    return str(ended.status["id"])


@pytest.mark.parametrize("name", ["byte_lm", "digits", "gan", "sliding", "streaming"])
def test_an_example(name: str, cluster: Cluster, kernels: Path, tmp_path: Path) -> None:
    if name == "digits":
        pytest.importorskip("sklearn")
    broken(cluster, Example(name, "an example"), tmp_path, kernels)


@pytest.mark.parametrize("card", RECIPES, ids=lambda card: card.name)
def test_a_recipe(card: Recipe, cluster: Cluster, kernels: Path, tmp_path: Path) -> None:
    """Its files are the same, too: adapters of all steps, and each step's loss once."""
    pytest.importorskip("mlx_lm", reason="needs elasticd[lm]")
    job = broken(cluster, card, tmp_path, kernels)
    cluster.command("outputs", job, "--out", tmp_path / "out")
    undisturbed = tmp_path / "alone" / "job" / "output"
    for name in ADAPTERS:
        assert (tmp_path / "out" / name).read_bytes() == (undisturbed / name).read_bytes(), name
    mine, other = (losses(folder) for folder in (tmp_path / "out", undisturbed))
    assert [line["step"] for line in mine] == list(range(1, card.steps + 1))
    assert mine == other


def losses(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "losses.jsonl").read_text().splitlines()]
