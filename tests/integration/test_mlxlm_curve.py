"""The recipe beside mlx-lm's own loop: the same model, batches and optimizer, one rank."""

from __future__ import annotations

import re
import subprocess
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from elasticd.recipes import mlxlm, models
from elasticd.recipes.rows import RowOrder, RowStream, collate, read_rows
from elasticd.settings import job
from elasticd.settings.recipe import MlxLm
from tests import tinylm

pytestmark = [pytest.mark.process, pytest.mark.deep]

STEPS = 40
Rows = Callable[[int, int], Iterable[Mapping[str, Any]]]
LORA = f"""\
model: model
data: data
num_layers: -1
lr_schedule: {{name: cosine_decay, arguments: [1e-3, {STEPS}], warmup: 5}}
batch_size: 4
iters: {STEPS}
seed: 3
steps_per_report: 1
lora_parameters: {{rank: 4}}
"""


def texts(count: int, seed: int) -> list[dict[str, str]]:
    """Rows without a prompt."""
    return [{"text": " ".join(row.values())} for row in tinylm.completions(count, seed)]


KINDS: dict[str, tuple[str, Rows]] = {
    "lora": ("mask_prompt: true\n", tinylm.completions),
    "dora": ("mask_prompt: true\nfine_tune_type: dora\n", tinylm.completions),
    "full": ("mask_prompt: true\nfine_tune_type: full\n", tinylm.completions),
    "texts": ("optimizer: adamw\noptimizer_config: {adamw: {weight_decay: 0.1}}\n", texts),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_loss_goes_where_mlx_lms_own_loop_lets_it_go(kind: str, tmp_path: Path) -> None:
    """Where that is right: it is given batches of rows of like length, in this order, and ends of
    rows that leave out the target of padding that it counts besides."""
    pytest.importorskip("mlx_lm", reason="needs elasticd[lm]")
    said, rows = KINDS[kind]
    in_one = tinylm.JOB.replace("micro = 2", "micro = 4")
    job_file = tinylm.write_job(tmp_path, LORA + said, in_one, rows)
    done = subprocess.run(
        [sys.executable, "-m", "elasticd.recipes", job_file],
        capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    ours = [float(loss) for loss in re.findall(r"^step \d+: loss (\S+),", done.stdout, re.M)]
    spec = job.load(job_file)
    assert spec.recipe is not None
    config = replace(spec.recipe.config, model=str(tmp_path / "model"), data=str(tmp_path / "data"))
    theirs = _theirs(config, spec.train.seed, tmp_path / "theirs")
    assert len(ours) == len(theirs) == STEPS
    assert ours[-1] < ours[0] - 1
    assert ours == pytest.approx(theirs, abs=2e-4)


def _theirs(config: MlxLm, seed: int, folder: Path) -> list[float]:
    import mlx.core as mx
    from mlx_lm.tuner.trainer import TrainingArgs, train
    from mlx_lm.utils import load

    from elasticd.train.steps import randomness

    randomness.seed_script(seed)
    model, tokenizer = load(config.model, lazy=True)[:2]
    models.prepare(model, config)
    samples = read_rows(Path(config.data) / "train.jsonl", tokenizer, config).samples
    stream = RowStream(samples, RowOrder.of(samples, 4, seed))

    def batches(**_: Any) -> Iterator[Any]:
        while True:
            batch = [next(stream) for _ in range(4)]
            ends = [[offset, len(row) - 1] for ((row, offset),) in batch]
            yield collate(config.max_seq_length)(batch)[0], mx.array(ends)

    losses: list[float] = []
    callback: Any = types.SimpleNamespace(
        on_train_loss_report=lambda told: losses.append(told["train_loss"]),
        on_val_loss_report=lambda told: None,
    )
    folder.mkdir()
    arguments = TrainingArgs(
        batch_size=4,
        iters=STEPS,
        steps_per_report=1,
        adapter_file=str(folder / "adapters.safetensors"),
    )
    train(
        model=model,
        optimizer=mlxlm.make_optimizer(config),
        train_dataset=list(samples),
        args=arguments,
        iterate_batches=batches,
        training_callback=callback,
    )
    return losses
