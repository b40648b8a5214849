"""Models by name: from a node's cache of the hub, a stand-in here, and never over the network."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from elasticd.errors import UsageError
from elasticd.recipes import models
from elasticd.settings.recipe import MlxLm

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def cache(model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """As huggingface_hub lays it out."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    repo = tmp_path / "models--org--tiny"
    (repo / "refs").mkdir(parents=True)
    (repo / "refs" / "main").write_text(COMMIT)
    shutil.copytree(model_folder, repo / "snapshots" / COMMIT)
    return tmp_path


@pytest.mark.parametrize("name", ["hub:org/tiny", "hub:org/tiny@main", f"hub:org/tiny@{COMMIT}"])
def test_a_model_that_is_in_the_cache_is_found(name: str, cache: Path, config: MlxLm) -> None:
    found = models.located(replace(config, model=name))
    assert Path(found.model) == cache / "models--org--tiny" / "snapshots" / COMMIT
    models.check_model(found)


@pytest.mark.parametrize("name", ["hub:org/other", "hub:org/tiny@v2", "hub:org/no--name"])
def test_one_that_is_not_is_named_with_the_cure(name: str, cache: Path, config: MlxLm) -> None:
    with pytest.raises(UsageError) as raised:
        models.located(replace(config, model=name))
    said = str(raised.value)
    owner_name, _, revision = name.removeprefix("hub:").partition("@")
    assert said.startswith(f"the model {owner_name} is neither a folder nor in this node's cache")
    assert f"({cache})" in said
    assert said.endswith(f"(hf download {owner_name}{' --revision v2' * bool(revision)})")


def test_a_folder_is_left_alone(config: MlxLm) -> None:
    assert models.located(config) is config


def test_the_recipe_asks_no_network(tmp_path: Path) -> None:
    """What it sets is seen by the library, which reads it when it is imported."""
    pytest.importorskip("huggingface_hub", reason="needs elasticd[lm]")
    code = (
        "import os; os.environ.pop('HF_HUB_OFFLINE', None)\n"
        "from elasticd.recipes import mlxlm\n"
        "mlxlm.go_offline()\n"
        "from huggingface_hub import constants; print(constants.HF_HUB_OFFLINE)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"
