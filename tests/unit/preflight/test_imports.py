"""What a script imports wherever it runs."""

from __future__ import annotations

from elasticd.preflight.imports import imported

SCRIPT = b"""
import os, numpy.linalg as la
from mlx import core
from helpers.data import rows
from .near import x
import model
try:
    import wandb
except ImportError:
    pass
if os.environ.get("X"):
    import torch
def f():
    import jax
"""


def test_packages_of_the_script_and_of_what_is_shipped_with_it() -> None:
    sources = {
        "src/train.py": SCRIPT,
        "src/model.py": b"import einops\nimport train",
        "src/helpers/__init__.py": b"",
        "src/helpers/data.py": b"import datasets",
        "src/helpers/unused.py": b"import pandas",
    }
    assert imported(sources, "src/train.py") == ("datasets", "einops", "mlx", "numpy")


def test_a_text_that_is_no_python_names_nothing() -> None:
    assert imported({"train.py": b"import \0x"}, "train.py") == ()
    assert imported({"train.py": b"def :"}, "./train.py") == ()
    assert imported({}, "train.sh") == ()
