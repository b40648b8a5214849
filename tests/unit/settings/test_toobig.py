"""What to do about a job's folder that is too big to be sent."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from elasticd import archive
from elasticd.errors import UsageError

RECIPE = """\
[job]
name = "a"
[recipe]
kind = "mlx-lm"
config = { model = "model", resume_adapter_file = "a.safetensors", iters = 20 }
"""
SCRIPT = """\
[job]
name = "a"
entrypoint = "train.pyz"
[batch]
global = 1
micro = 1
[train]
steps = 1
init_from = "a.safetensors"
"""
NOT_NEEDED = "name what isn't needed in .elasticdignore"


@pytest.mark.parametrize(
    ("text", "huge", "cure"),
    [
        (RECIPE, "data/valid.jsonl", "give recipe.config.data an absolute path, of what every"),
        (RECIPE, "model/model-1.safetensors", "give recipe.config.model an absolute path, of what"),
        (RECIPE, "a.safetensors", "give recipe.config.resume_adapter_file an absolute path, of"),
        (RECIPE, "data/notes.txt", NOT_NEEDED),
        (RECIPE, "other", NOT_NEEDED),
        (SCRIPT, "a.safetensors", "give train.init_from an absolute path, of what every node has"),
        (SCRIPT, "train.pyz", NOT_NEEDED),
    ],
)
def test_what_a_node_may_have_elsewhere_is_told_apart(
    text: str, huge: str, cure: str, tmp_path: Path
) -> None:
    (tmp_path / "job.toml").write_text(text)
    for name in ("model/config.json", "data/train.jsonl", "train.pyz", "a.safetensors", huge):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}\n")
    os.truncate(tmp_path / huge, archive.MAX_ARCHIVE_BYTES + 1)
    with pytest.raises(UsageError) as refused:
        archive.of_job(tmp_path / "job.toml")
    assert f"(the biggest file is {huge}, 64.0 MiB); {cure}" in str(refused.value)
