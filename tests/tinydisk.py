"""A disk with little room, for tests of what happens on one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def tiny_disk(folder: Path, size: str = "4k", files: int = 64) -> Iterator[None]:
    """A disk with little room, mounted at ``folder``."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("mounting a small disk takes root on Linux")
    options = ["-t", "tmpfs", "-o", f"size={size},nr_inodes={files},mode=700"]
    mounted = subprocess.run(
        ["mount", *options, "tmpfs", folder], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"no disk can be mounted here: {mounted.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", folder], check=True)
