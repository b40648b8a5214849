"""What was skipped is written down for whoever runs all tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.nottried import FILE

CHECKOUT = Path(__file__).parents[2]
OPTIONS = ["-q", "-p", "tests.nottried", "-p", "no:cacheprovider", "-c", "/dev/null"]
PYTEST = [sys.executable, "-m", "pytest", *OPTIONS]
ENVIRONMENT = {name: text for name, text in os.environ.items() if "PYTEST" not in name}
"""We may run beside other tests ourselves."""
TESTS = """
import pytest

@pytest.mark.parametrize("n", [1, 2])
def test_here(n): pytest.skip("needs\\n a Mac")

@pytest.mark.skipif(True, reason="needs root")
def test_there(): pass

def test_tried(): pass
"""


@pytest.mark.process
@pytest.mark.parametrize("parallel", [[], ["-n", "1"]])
def test_each_skip_is_noted_with_its_reason(tmp_path: Path, parallel: list[str]) -> None:
    (tmp_path / "test_some.py").write_text(TESTS)
    (tmp_path / "test_other.py").write_text("import pytest\npytest.importorskip('nowhere_at_all')")
    noted = tmp_path / "noted"
    for _ in range(2):
        subprocess.run(
            [*PYTEST, "--rootdir", tmp_path, *parallel, tmp_path],
            env={**ENVIRONMENT, FILE: str(noted), "PYTHONPATH": str(CHECKOUT)},
            check=True,
            stdout=subprocess.DEVNULL,
        )
    told = noted.read_text().splitlines()
    assert told.count("needs a Mac (test_some.py)") == 4, told
    assert told.count("needs root (test_some.py)") == 2, told
    assert any("nowhere_at_all" in line and "test_other.py" in line for line in told), told
