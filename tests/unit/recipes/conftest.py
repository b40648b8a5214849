"""One tiny model for all tests of recipes. Without mlx-lm they are skipped, and say so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from elasticd.settings.recipe import MlxLm
from tests import tinylm


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mlx_lm", reason="needs elasticd[lm]")
    return tinylm.write_model(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture(scope="session")
def tokenizer(model_folder: Path) -> Any:
    from mlx_lm.utils import load

    return load(str(model_folder), lazy=True)[1]


@pytest.fixture
def config(model_folder: Path) -> MlxLm:
    return MlxLm(model=str(model_folder), num_layers=-1)
