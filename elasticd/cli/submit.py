"""From a job.toml to a queued job."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from elasticd import archive
from elasticd.archive import Archive
from elasticd.settings.job import JobSpec


def prepare(path: Path, overrides: Sequence[str]) -> tuple[JobSpec, Archive]:
    """Validate a job.toml, or that of a folder, and pack its folder; nothing is sent.

    Raises:
        UsageError: the file, an assignment or the folder is wrong.
    """
    if path.is_dir():
        path = path / "job.toml"
    return archive.of_job(path, overrides)
