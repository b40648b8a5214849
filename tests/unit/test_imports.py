"""What a script imports wherever it runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from elasticd.imports import imported, relative

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


@pytest.mark.parametrize(
    "text, found",
    [
        ("from .model import (\n  A,\n  B)", (1, "from .model import …", "from model import …")),
        ("x = 1\nfrom ..a.b import C", (2, "from ..a.b import …", "from a.b import …")),
        ("from . import a, b as c", (1, "from . import …", "import a, b as c")),
        ("from . import *", (1, "from . import …", "import …")),
    ],
)
def test_an_import_that_needs_a_package_fails_in_a_script(
    text: str, found: tuple[int, str, str], tmp_path: Path
) -> None:
    assert relative(text.encode()) == found
    (tmp_path / "train.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "-I", "train.py"], cwd=tmp_path, capture_output=True, text=True
    )
    assert f"line {found[0]}" in done.stderr and "no known parent package" in done.stderr


@pytest.mark.parametrize(
    "text",
    [
        "import a\nfrom b import c",
        "try:\n  from . import a\nexcept ImportError:\n  import a",
        "def f():\n  from . import a",
        "import runpy\nif __name__ == '__main__':\n  raise SystemExit\nfrom . import a",
        "again()\nfrom . import a",
        "__package__ = 'job'\nfrom . import a",
    ],
)
def test_what_may_do_well_is_not_refused(text: str) -> None:
    assert relative(text.encode()) is None
