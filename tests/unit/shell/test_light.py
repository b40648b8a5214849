"""What a daemon does not load: it runs on every node for years, beside what trains."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.process
@pytest.mark.parametrize("heavy", ["mlx", "numpy", "rich", "typer"])
def test_a_daemon_does_without(heavy: str) -> None:
    check = f"import sys; import elasticd.shell.daemon; sys.exit({heavy!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], timeout=60, check=False).returncode == 0
