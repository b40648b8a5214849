"""What the ranks of test jobs write after each step (jobs/common.py, ``Ledger``)."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def lines(home: Path, job: str) -> Iterator[dict[str, Any]]:
    """Of all ranks, on all nodes of the cluster at ``home``."""
    for path in _files(home, job):
        for line in path.read_text().splitlines():
            # A process that was killed may have left half a line.
            with contextlib.suppress(ValueError):
                yield json.loads(line)


def writers(home: Path, job: str) -> set[int]:
    """The processes that wrote them."""
    return {int(path.stem) for path in _files(home, job)}


def _files(home: Path, job: str) -> list[Path]:
    return sorted(home.glob(f"*/ledgers/{job}/*.jsonl"))
