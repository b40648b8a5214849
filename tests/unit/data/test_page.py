"""The examples of docs/data.md run, alone."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "data.md"
JOB = """
[job]
name = "page"
entrypoint = "train.py"
[batch]
global = 8
micro = 4
[train]
steps = 12
"""


def section(title: str) -> str:
    """The one script that stands there."""
    text = PAGE.read_text().partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    (code,) = re.findall(r"^```python\n(.+?)^```", text, re.S | re.M)
    return str(code)


@pytest.mark.process
@pytest.mark.parametrize(
    "title",
    [
        "Files of JSON lines",
        "Tokens",
        "Packed rows",
        "Hugging Face datasets",
    ],
)
def test_an_example_of_the_page_trains(title: str, tmp_path: Path) -> None:
    if "import datasets" in section(title):
        pytest.importorskip("datasets", reason="datasets is not installed")
    rows = "".join(json.dumps({"text": f"row number {n}"}) + "\n" for n in range(30))
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus/a.jsonl").write_text(rows)
    (tmp_path / "corpus/b.jsonl.gz").write_bytes(gzip.compress(rows.encode()))
    (tmp_path / "job.toml").write_text(JOB)
    (tmp_path / "train.py").write_text(section(title))
    elsewhere = {
        "HF_HOME": str(tmp_path / "hub"),
        "HF_HUB_OFFLINE": "1",
        "ELASTICD_CACHE_DIR": str(tmp_path / "cache"),
    }
    done = subprocess.run(
        [sys.executable, str(tmp_path / "train.py")],
        capture_output=True, text=True, timeout=100, cwd=tmp_path,
        env={**os.environ, **elsewhere},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = [line.split() for line in done.stdout.splitlines()]
    assert [int(words[0]) for words in told] == list(range(1, 13))
    assert int(told[-1][1]) >= 1 and float(told[-1][2]) < float(told[0][2])
