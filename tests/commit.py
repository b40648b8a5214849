"""The commit that is tested: what is drawn from its hash is drawn again when tests are repeated."""

from __future__ import annotations

import functools
import subprocess
from pathlib import Path


@functools.cache
def commit() -> str:
    """The hash of what is checked out; without git it is always the same."""
    found = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=Path(__file__).parent, capture_output=True, text=True
    )
    return found.stdout.strip() or "no commit"
