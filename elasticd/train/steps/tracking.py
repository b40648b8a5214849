"""What ``[track]`` of job.toml asks for: the figures of each step, once, whoever was main.

TensorBoard's file is one of ``run.open``'s: when the job goes back to an earlier state so does the
file. Services are told by main alone.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from elasticd.errors import UsageError
from elasticd.settings.job import JobSpec
from elasticd.settings.track import TrackSettings
from elasticd.train.outputs import services

_MOST_STEPS = 20_000
"""Of a longer job each so-manieth step is told."""
_LOSS = "loss"
_WORLD_SIZE = "elasticd/world_size"


class Tracking:
    """Of one process."""

    def __init__(
        self, spec: JobSpec, taking: Callable[[str], Callable[[bytes], None]], outputs: Path
    ) -> None:
        """``taking`` gives what takes in bytes for the file of that name; ``outputs``: the job's
        folder for them."""
        track = spec.track or TrackSettings()
        self._tensorboard = track.tensorboard
        self._projects = {"wandb": track.wandb, "trackio": track.trackio}
        self._tellers: list[services.Teller] = []
        self._job, self._outputs = spec.job.name, outputs
        self._taking = taking
        self._every = -(-spec.train.steps // _MOST_STEPS)
        self._scalars: Callable[[int, Mapping[str, float], float], bytes] | None = None
        self._take: Callable[[bytes], None] | None = None
        """None: it is not begun, or full."""

    def begin(self) -> None:
        """The script comes to its loop.

        Raises:
            UsageError: what it needs is not installed, or the disk refuses the file.
        """
        if self._tensorboard:
            from elasticd.train.outputs import tensorboard

            self._take, self._scalars = self._taking(tensorboard.NAME), tensorboard.scalars
            self._write(tensorboard.beginning(time.time()), "here")
        for package, project in self._projects.items():
            if project:
                services.require(package)
                begin = partial(services.PACKAGES[package], self._run_of(package, project))
                self._tellers.append(services.Teller(package, begin))

    def _run_of(self, package: str, project: str) -> services.Destination:
        """A job's id is the name of its folder of outputs; a script alone begins a run each
        time."""
        name = self._outputs.name
        is_job = name.startswith(f"{self._job}-")
        return services.Destination(
            project, name if is_job else self._job, is_job, self._outputs / package
        )

    def body_ends(
        self,
        step: int,
        loss: float | None,
        logged: Mapping[str, float],
        world_size: int,
        *,
        is_main: bool = True,
    ) -> None:
        """The body of ``step`` is over, in which the script has ``logged`` that. ``loss`` is None
        where the step was skipped."""
        if step % self._every == 0 or step == 1:
            values = {} if loss is None else {_LOSS: loss}
            values |= {**logged, _WORLD_SIZE: float(world_size)}
            if self._scalars is not None:
                self._write(self._scalars(step, values, time.time()), f"at step {step}")
            for teller in self._tellers if is_main else ():
                teller.tell(step, values)
        for teller in () if is_main else self._tellers:
            teller.leave()

    def end(self) -> None:
        """The script has left its loop."""
        for teller in self._tellers:
            teller.close()

    def _write(self, data: bytes, where: str) -> None:
        if self._take is None:
            return
        try:
            self._take(data)
        except UsageError as error:  # it is full, which is no reason to end a job
            print(f"elasticd: the file of [track] ends {where}: {error}", file=sys.stderr)
            self._take = None
