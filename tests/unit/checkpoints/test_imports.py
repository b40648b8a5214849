"""The daemon uses all but the codec, and must never load MLX."""

from __future__ import annotations

import subprocess
import sys

import pytest

MODULES = ["choose", "disk", "folder", "header", "layout", "line", "manifest", "retention", "store"]


@pytest.mark.process
def test_only_the_codec_loads_mlx() -> None:
    imports = "; ".join(f"import elasticd.checkpoints.{name}" for name in MODULES)
    check = f"import sys; {imports}; sys.exit('mlx' in sys.modules or 'mlx.core' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], timeout=60, check=False).returncode == 0
