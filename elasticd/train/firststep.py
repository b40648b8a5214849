"""``python -m elasticd.train.firststep SPEC RESULT``: a job's script as far as its first gradient.

In the job's folder, without a daemon, in a world of one that computes one grain. What that came to
is written to the file RESULT, as JSON, and then the process ends: nothing is updated. It gives way
to everything else on the machine.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from elasticd.settings.job import JobSpec
from elasticd.supervision.priority import BEHIND_RANKS, give_way
from elasticd.train.alone import AloneSeat
from elasticd.train.link.host import leave_aside, run_job, watch_reruns
from elasticd.train.link.stderrkept import STDERR
from elasticd.train.states.state import Snapshot
from elasticd.train.states.updates import Update
from elasticd.train.steps import randomness, relief
from elasticd.train.steps.seat import HOST, ProbeResult
from elasticd.train.world import TrainerWorld

_ONE = ((0, 1),)


class FirstStepSeat(AloneSeat):
    """A world of one that is over at its first gradient."""

    def __init__(self, spec: JobSpec, folder: Path, result: Path) -> None:
        super().__init__(spec, folder)
        self._result = result
        self._batch = self._weights = ""

    def at_run(self, fingerprint: Mapping[str, str]) -> None:
        self._batch = fingerprint["grain0"]

    def _first_world(self) -> TrainerWorld:
        # All other grains would be computed for nothing.
        return replace(super()._first_world(), shares_now=(_ONE,), shares=(_ONE,))

    def hold(
        self, snapshot: Snapshot, update: Update | None = None, *, loaded: bool = False
    ) -> None:
        self._weights = snapshot.check()

    def agree(self, result: ProbeResult) -> None:
        told = {
            "repeats": result.repeats,
            "gradient": result.gradient,
            "update": result.update,
            "cpu_update": result.cpu_update,
            "batch": self._batch,
            "weights": self._weights,
        }
        self._result.write_text(json.dumps(told))
        # Not sys.exit: the script may catch it, and its threads may be inside MLX.
        leave_aside(0)


def main(spec_file: Path, result: Path) -> NoReturn:
    """Ends the process, with 0 and without a result where the script makes no step."""
    give_way(BEHIND_RANKS)
    # Who asks wants none of what the script prints.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    spec = replace(JobSpec.from_dict(json.loads(spec_file.read_bytes())), track=None)
    folder = Path.cwd()
    HOST.prepare(FirstStepSeat(spec, folder, result))
    STDERR.keep()
    relief.begin(aside=True)
    randomness.seed_script(spec.train.seed)
    watch_reruns(spec, folder, leave_aside)
    leave_aside(run_job(spec, folder))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
