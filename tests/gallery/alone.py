"""Run a script of the gallery by itself: ``python train.py``, without any daemon."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.gallery.cards import Card

BESIDE = Path(__file__).parent / "beside"
SEARCHED = os.pathsep.join((str(BESIDE), str(Path(__file__).parents[2])))
"""Where a script's process finds modules: the elasticd of this checkout, whatever is installed."""
SECONDS = 100
SHOWN_LINES = 6


@dataclass(frozen=True)
class Alone:
    """How a script ended by itself."""

    exit_status: int
    digest: str = ""
    step: int = 0
    words: str = ""
    """The last lines that it wrote to stderr."""


def run_alone(card: Card, folder: Path, kernels: Path) -> Alone:
    """Lay the job out in ``folder`` and run it. ``kernels``: where MLX keeps what it compiles."""
    job = card.lay_out(folder / "job")
    record = folder / "record.json"
    environment = {
        **{key: value for key, value in os.environ.items() if key != "PYTHONHASHSEED"},
        **card.settings.get("job.env", {}),
        "PYTHONPATH": SEARCHED,
        "GALLERY_RECORD": str(record),
        "TMPDIR": str(kernels),
    }
    try:
        done = subprocess.run(
            [sys.executable, *card.command(job)],
            env=environment,
            cwd=job.parent,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Alone(-1, words=f"hangs: not over after {SECONDS} s")
    words = " / ".join(done.stderr.strip().splitlines()[-SHOWN_LINES:])
    said = json.loads(record.read_text()) if record.is_file() else {}
    return Alone(done.returncode, said.get("digest", ""), said.get("step", 0), words)


def judge_alone(card: Card, alone: Alone) -> list[str]:
    """What is not as the card says, in sentences."""
    match card.expect:
        case "same" | "named" | "left out":
            if alone.exit_status:
                return [f"alone: ends with {alone.exit_status}: {alone.words}"]
            return [] if alone.step else ["alone: no step was made"]
        case "refused" | "fails":
            if not alone.exit_status:
                return [f"alone: goes through all of its {alone.step} steps"]
            if not all(word in alone.words for word in card.words):
                return [f"alone: ends without the words {card.words}: {alone.words}"]
    return []
