"""The examples are job folders, not packages: load a script as a module of its own."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

EXAMPLES = Path(__file__).parents[3] / "elasticd" / "examples"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / name / "train.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def byte_lm() -> ModuleType:
    return load("byte_lm")


@pytest.fixture(scope="session")
def digits() -> ModuleType:
    return load("digits")
