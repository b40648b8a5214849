"""Runs probes, each in a child with a deadline: one that hangs or crashes is a finding, too."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from elasticd.cli.mac.probe import MacProbe
from elasticd.cli.screen import warn
from elasticd.preflight.finding import ProbeFinding, failed
from elasticd.supervision.birth import UNSEEN

CHILD = (sys.executable, "-P", "-m", "elasticd.cli.mac")
_LOOK_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class TrialResult:
    """``printed``: the end of what the child wrote besides its finding."""

    probe: MacProbe
    finding: ProbeFinding
    printed: str = ""

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "name": self.probe.name,
            "about": self.probe.about,
            "verdict": self.finding.verdict,
            "value": self.finding.value,
            "cure": self.finding.cure,
        }


def run_probe(probe: MacProbe, disk: Path | None, child: Sequence[str] = CHILD) -> TrialResult:
    """Run it in a new folder on the disk of ``disk``; None: that of temporary files.

    Raises:
        OSError: there can be no such folder.
    """
    with tempfile.TemporaryDirectory(prefix="elasticd-probe-", dir=disk) as folder:
        process = subprocess.Popen(
            [*child, probe.name, folder],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # sudo knows only who is in the session in which the password was given.
            start_new_session=not probe.root,
            process_group=0 if probe.root else None,
        )
        late = False
        try:
            out, err = process.communicate(timeout=probe.seconds)
        except subprocess.TimeoutExpired:
            late = True
            _ask_to_end(process, probe.grace)
        except BaseException:
            with contextlib.suppress(OSError):  # the terminal may be gone
                warn(f"{probe.name}: it ends what it has started, within {probe.grace:g} s")
            _ask_to_end(process, probe.grace)
            raise
        finally:
            # Also what it has started, and left behind.
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
        if late:
            out, err = process.communicate()
    printed = err.decode("utf-8", "replace")[-4000:]
    if late:
        value = f"it hangs: nothing was said within {probe.seconds:g} s"
        return TrialResult(probe, failed(value, probe.crashed), printed)
    return TrialResult(probe, _read(probe, out, process.returncode, printed), printed)


def _ask_to_end(process: subprocess.Popen[bytes], grace: float) -> None:
    """All that it has started: the demo ends its daemons, which have sessions of their own."""
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGTERM)
    until = time.monotonic() + grace
    while _lives(process.pid) and time.monotonic() < until:
        time.sleep(_LOOK_SECONDS)


def _lives(group: int) -> bool:
    for each in psutil.process_iter():
        with contextlib.suppress(*UNSEEN):
            if os.getpgid(each.pid) == group and each.status() != psutil.STATUS_ZOMBIE:
                return True
    return False


def _read(probe: MacProbe, out: bytes, status: int, printed: str) -> ProbeFinding:
    try:
        return ProbeFinding(**json.loads(out.splitlines()[-1]))
    except (ValueError, TypeError, IndexError):
        how = f"ended by {signal.Signals(-status).name}" if status < 0 else f"status {status}"
        last = printed.strip().rpartition("\n")[2]
        return failed(f"{how}: {last}" if last else how, probe.crashed)
