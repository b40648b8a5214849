"""From a job.toml to a queued job."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from elasticd import archive
from elasticd.archive import Archive
from elasticd.settings.job import JobSpec
from elasticd.settings.recipe import HUB, is_config


def prepare(path: Path, overrides: Sequence[str]) -> tuple[JobSpec, Archive]:
    """Validate a job.toml, that of a folder, or a file of mlx-lm's, and pack what it needs; nothing
    is sent.

    Raises:
        UsageError: the file, an assignment or the folder is wrong.
    """
    if path.is_dir():
        path = path / "job.toml"
    return archive.of_job(path, overrides)


def taken(path: Path, spec: JobSpec) -> str:
    """What a file of mlx-lm's was taken for, in a sentence; "" of a job.toml."""
    if spec.recipe is None or not is_config(path):
        return ""
    config, batch = spec.recipe.config, spec.batch
    model, data = config.model.removeprefix(HUB), config.data.removeprefix(HUB)
    return (
        f"{path} is a configuration of mlx-lm: job {spec.job.name}, {config.fine_tune_type} of"
        f" {model} on {data}, {spec.train.steps} steps of {batch.global_} samples,"
        f" {batch.micro} computed at once, seed {spec.train.seed}"
    )
