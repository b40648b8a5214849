"""The jobs of jobs/, run by themselves: what bits they end with, and what MLX compiles for them."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

JOBS = Path(__file__).parent / "jobs"
ALONE = "alone"
"""In the place of a job's id: its ledger is under that name."""


class Alone:
    """Each is run once, however many processes ask for it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self.kernels = folder / "cache"

    def folder(self, entrypoint: str) -> Path:
        """Where it has run, as a trainer would: beneath a node of the cluster ``home``."""
        return self._folder / entrypoint

    def digest(self, entrypoint: str) -> str:
        """Of its final state, as the script prints it."""
        known = self.folder(entrypoint) / "digest"
        with (self._folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not known.exists():
                found = self._run(entrypoint)
                known.write_text(found)
        return known.read_text()

    def _run(self, entrypoint: str) -> str:
        self.kernels.mkdir(exist_ok=True)
        folder = self.folder(entrypoint)
        shutil.copytree(JOBS, folder / "job")
        description = folder / "job" / "job.toml"
        description.write_text(description.read_text().replace("high.py", entrypoint))
        clone = folder / "home" / "node-0" / "clones" / ALONE / "0"
        clone.mkdir(parents=True)
        done = subprocess.run(
            [sys.executable, folder / "job" / entrypoint, "--pace-seconds", "0"],
            cwd=clone,
            env={**os.environ, "TMPDIR": str(self.kernels)},
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        word, digest = done.stdout.splitlines()[-1].split()
        assert word == "digest", done.stdout
        return digest


def compile_kernels(folder: Path) -> Path:
    """A cache with the kernels that MLX compiles for low.py. Each is 0.4 s of a processor."""
    alone = Alone(folder)
    alone.digest("low.py")
    return alone.kernels


def copy_kernels(kernels: Path, home: Path) -> None:
    """Let a node start with them; others may be compiled there at this moment."""
    unfinished = shutil.ignore_patterns("tmp_*")
    shutil.copytree(kernels / "mlx", home / "cache" / "mlx", ignore=unfinished, dirs_exist_ok=True)
