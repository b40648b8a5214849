"""The last probe: the whole of it, trained and broken on this machine."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from elasticd.machinememory import swapped_bytes
from elasticd.preflight.finding import ProbeFinding, failed, passed, warned

DEMO = (sys.executable, "-P", "-c", "from elasticd.cli import main; main()", "demo", "--json")
_SWAP_BYTES = 256 << 20


def demo(
    folder: Path,
    command: Sequence[str] = DEMO,
    swapped: Callable[[], int | None] = swapped_bytes,
) -> ProbeFinding:
    """``elasticctl demo``, and whether the machine swaps for it."""
    before = swapped()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        out, err = process.communicate()
    finally:
        process.wait()  # if this probe is to end: the demo is, too, and takes its daemons along
    try:
        told = json.loads(out.splitlines()[-1])
        equal, seconds, error = bool(told["equal"]), float(told["seconds"]), told["error"]
    except (ValueError, KeyError, IndexError, TypeError):
        said = err.decode("utf-8", "replace").strip().splitlines()[-1:]
        why = said[0] if said else "it says nothing"
        return failed(
            f"status {process.returncode}: {why}", "Run 'make demo' and read what it says"
        )
    if error:
        return failed(str(error), "Run 'make demo' and read what it says; the logs are kept")
    if not equal:
        return failed(
            "after the faults the job has other bits than without",
            "See what the probes 'grain' and 'adamw' say of this machine, and send this result",
        )
    after = swapped()
    value = f"{len(told['faults'])} faults, equal bits, {seconds:.0f} s"
    if before is None or after is None:
        return passed(f"{value}; the system does not say what is swapped out")
    grown = after - before
    if grown > _SWAP_BYTES:
        cure = "Close other programs before a job begins, or take a smaller batch.micro"
        return warned(f"{value}; swap grew by {grown >> 20} MiB", cure)
    return passed(f"{value}; swap is flat")
