"""Runs one trial: a process of its own, in a folder of its own, that is ended when it has shown
enough."""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from elasticd import archive
from elasticd.errors import OperationError
from elasticd.preflight.trials import LEAST_STEPS, WARM_STEPS, Setting, Trial
from elasticd.recovery.relief import RECOMPUTE_LEVEL
from elasticd.recovery.signatures import of_text
from elasticd.removing import remove_tree
from elasticd.settings.job import JobSpec
from elasticd.settings.otherpython import not_started, without_elasticd
from elasticd.shell.children.environment import Variables
from elasticd.shell.children.trial import readable
from elasticd.shell.clock import monotonic_seconds

MODULE = "elasticd.train.trial"
MOST_STEPS = 30
"""Of a trial that count: more make its median no better."""
MOST_LOG_BYTES = 16 << 20
"""Of what a trial prints, which is kept for as long as it runs."""
_TAIL_BYTES = 4000
_LOOK_SECONDS = 0.5


@dataclass(slots=True)
class TrialRunner:
    """Of one job. ``data``: the archive of its files. ``folder``: where each trial has one of its
    own. ``seconds``: how long steps are measured in each. ``tells``: what was seen so far, now and
    then. ``stop``: why the trial that runs is to end, if it is. ``aside``: it gives way to
    everything else on the machine. ``most_seconds``: it is given up after so long."""

    spec: JobSpec
    data: bytes
    variables: Variables
    folder: Path
    seconds: float
    tells: Callable[[str], None] = lambda text: None
    stop: Callable[[], str] = lambda: ""
    aside: bool = False
    most_seconds: float = math.inf
    count: int = 0

    def run(self, setting: Setting) -> Trial:
        """Raises OperationError: it is to end."""
        self.count += 1
        home, log = self.folder / str(self.count), self.folder / f"{self.count}.log"
        archive.unpack(self.data, home)
        told = self.folder / f"{self.count}.json"
        told.write_text(json.dumps(self._told(setting)))
        try:
            with _process(self._started(told, home, log)) as (process, lines):
                seen = _TrialWatch(setting, self.seconds, self.spec.job.python)
                self._watch(process, lines, log, seen)
                return seen.trial(process, _tail(log))
        finally:
            with contextlib.suppress(OSError):
                remove_tree(home)
            for file in (log, told):
                file.unlink(missing_ok=True)

    def _told(self, setting: Setting) -> dict[str, Any]:
        """As the process reads it."""
        spec = replace(self.spec, batch=replace(self.spec.batch, micro=setting.micro))
        return {
            "spec": spec.to_dict(),
            "relief": RECOMPUTE_LEVEL if setting.recompute else 0,
            "store_every": setting.store_every,
            "aside": self.aside,
        }

    def _started(
        self, told: Path, home: Path, log: Path
    ) -> Callable[[int], subprocess.Popen[bytes]]:
        python = self.spec.job.python
        command = [python or sys.executable, "-m", MODULE, str(told)]

        def start(fd: int) -> subprocess.Popen[bytes]:
            with log.open("ab") as printed:  # at its end, wherever that is by then
                try:
                    return subprocess.Popen(
                        [*command, str(fd)],
                        cwd=home,
                        env=dict(self.variables),
                        stdin=subprocess.DEVNULL,
                        stdout=printed,
                        stderr=printed,
                        pass_fds=(fd,),
                        start_new_session=True,  # what it starts ends with it, mostly
                    )
                except OSError as error:
                    if python and error.filename == python:
                        raise OperationError(not_started(python, error)) from None
                    raise

        return start

    def _watch(
        self, process: subprocess.Popen[bytes], lines: int, log: Path, seen: _TrialWatch
    ) -> None:
        """Until it has shown enough, or has ended, or never comes to a step. What it has started
        may have the other end of ``lines``, and is not waited for."""
        patience = monotonic_seconds() + self.spec.recovery.user_code_seconds
        late = monotonic_seconds() + self.most_seconds
        data = b""
        while not seen.enough and monotonic_seconds() < min(patience, late):
            _bound(log)
            if why := self.stop():
                raise OperationError(why)
            ended = process.poll() is not None  # what it has told is all there from now on
            if not readable([lines], 0.0 if ended else _LOOK_SECONDS):
                if ended:
                    return
                continue
            if not (more := os.read(lines, 65536)):
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(max(0.0, patience - monotonic_seconds()))
                    return
                break
            *whole, data = (data + more).split(b"\n")
            for line in whole:
                seen.take(json.loads(line))
                patience = monotonic_seconds() + self.spec.recovery.user_code_seconds
            self.tells(f"trying {seen.setting}: step {seen.step}")
        seen.gives_up = not seen.enough


class _TrialWatch:
    """What a trial has told so far."""

    def __init__(self, setting: Setting, seconds: float, python: str) -> None:
        """``python``: the job's own interpreter, if it names one."""
        self.setting, self._seconds, self._python = setting, seconds, python
        self._begun = False
        self.step = 0
        self.gives_up = False
        self._moments: list[float] = []
        self._peak = self._active = self._limit = 0
        self._stored: list[tuple[int, float]] = []
        self._unwritten = ""

    def take(self, told: dict[str, Any]) -> None:
        """One line."""
        self._begun = True
        if "limit" in told:
            self._limit = int(told["limit"])
        elif "wrote" in told:
            self._stored.append((int(told["wrote"]), float(told["seconds"])))
        elif "unwritten" in told:
            self._unwritten = str(told["unwritten"])
        elif "step" in told:
            self.step = int(told["step"])
            if self.step >= WARM_STEPS:
                self._moments.append(float(told["at"]))
            if self.step > WARM_STEPS:
                self._peak, self._active = int(told["peak"]), int(told["active"])

    @property
    def enough(self) -> bool:
        """Whether more of it would tell nothing new."""
        count = len(self._moments) - 1
        if count < LEAST_STEPS:
            return False
        spent = self._moments[-1] - self._moments[0]
        return count >= MOST_STEPS or spent >= self._seconds

    def trial(self, process: subprocess.Popen[bytes], tail: str) -> Trial:
        """What comes of it; the process may still run."""
        pairs = zip(self._moments, self._moments[1:], strict=False)
        seconds = tuple(after - before for before, after in pairs)
        failed, short = self._unwritten, False
        if len(seconds) < LEAST_STEPS:
            failed, short = self._why(process.poll(), tail)
            seconds = ()
        return Trial(
            self.setting,
            seconds,
            self._peak,
            self._active,
            self._limit,
            tuple(self._stored),
            failed,
            short,
        )

    def _why(self, status: int | None, tail: str) -> tuple[str, bool]:
        lines = [line for line in tail.splitlines() if line.strip()]
        last = lines[-1].strip() if lines else "it printed nothing"
        if self.gives_up:
            return f"it came to no further step than {self.step}: {last}", False
        if status == 0:
            least = WARM_STEPS + LEAST_STEPS
            return f"it ended after step {self.step}; {least} are needed to measure", False
        if self._python and not self._begun and (status or 0) > 0:
            return without_elasticd(self._python, status or 0, tail), False
        found = of_text(tail)
        if (found is not None and found[0] == "oom") or status == -signal.SIGKILL:
            return f"memory ran out: {found[1] if found else 'it was killed'}", True
        return f"it ended with status {status}: {last}", False


@contextlib.contextmanager
def _process(
    start: Callable[[int], subprocess.Popen[bytes]],
) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """The process, and where its lines come. Nothing of it is left."""
    lines, fd = os.pipe()
    try:
        try:
            process = start(fd)
        finally:
            os.close(fd)
        try:
            yield process, lines
        finally:
            # macOS answers EPERM for a group whose members have all ended.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    finally:
        os.close(lines)


def _bound(log: Path) -> None:
    if log.stat().st_size > MOST_LOG_BYTES:
        os.truncate(log, 0)


def _tail(log: Path) -> str:
    with log.open("rb") as printed:
        printed.seek(max(0, printed.seek(0, os.SEEK_END) - _TAIL_BYTES))
        return printed.read().decode(errors="replace")
