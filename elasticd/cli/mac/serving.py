"""A probe of the service: installed, its daemon killed, and whether the trainers live on.

On macOS it is a LaunchDaemon, which takes root: the owner is asked for the password once, before.
On Linux a local cluster of one, whose keeper starts the daemon again.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import psutil

from elasticd.cli.daemons import LOG_FILE
from elasticd.cli.mac.system import Tool, listed, tool
from elasticd.cli.screen import warn
from elasticd.client.client import Client
from elasticd.core.words.requests.looking import ShowStatus
from elasticd.errors import ElasticdError, OperationError
from elasticd.launchd.service import LaunchdService
from elasticd.preflight.finding import ProbeFinding, failed, passed, warned
from elasticd.preflight.speeds import SIDE, speed_of
from elasticd.settings.places import default_home
from elasticd.shell.control.speeddesk import MODULE, kept_speed
from elasticd.supervision.birth import UNSEEN
from elasticd.supervision.service import invoking_user, run_command
from elasticd.types import NodeId

CTL = (sys.executable, "-P", "-c", "from elasticd.cli import main; main()")
SUDO = ("sudo", "-n")
_COMMAND_SECONDS, _WAIT_SECONDS, _LOOK_SECONDS = 100.0, 90.0, 0.2
REMOVE_SECONDS = _COMMAND_SECONDS + 20.0
"""For the service to go, and its daemon with it."""
SECONDS = 5 * _COMMAND_SECONDS + 3 * _WAIT_SECONDS + REMOVE_SECONDS
"""All that it may wait for: five commands, three things to be seen, and the end."""
_LOG = "See what the daemon logged last, and send the bundle, which has more of it"
_SPEED_SECONDS = 2
_OF_OWN_SPEED = 0.5
"""Below that share the service is slowed down."""
_SLOW = (
    "Try again while nothing else computes. If it stays so send this result, and until that is"
    " cured start elasticd in Terminal, not as a service"
)
_AWAKE = "Keep this Mac awake by its settings: sudo pmset -a sleep 0"
_LINES, _PRINTED_LINES = 2, 40
"""Of the daemon's log: in the finding, and in the bundle."""
SCRIPT = """import time
import elasticd, mlx.core as mx, mlx.nn as nn, mlx.optimizers as optim
model = nn.Linear(4, 1)
def loss(model, x, y):
    return mx.mean((model(x) - y) ** 2)
data = [(mx.ones(4) * number, mx.ones(1)) for number in range(8)]
for step in elasticd.Run(model=model, optimizer=optim.SGD(1e-3), loss=loss, data=data):
    time.sleep(0.1)
"""
JOB = """[job]
name = "probe"
entrypoint = "train.py"
[batch]
global = 8
micro = 4
[train]
steps = 1000000
[checkpoint]
every_steps = 1000000
"""


@dataclass(frozen=True, slots=True)
class ServiceSeen:
    """Its daemon's process, and those of the job's trainers; none answers: 0, none."""

    daemon: int = 0
    trainers: tuple[int, ...] = ()
    step: int = 0


class ServiceStage(Protocol):
    """Where the probe plays. All but :meth:`seen` may raise OperationError."""

    def refuses(self) -> str:
        """Why no service is tried out here, or nothing."""
        ...

    def install(self) -> None: ...
    def speeds(self) -> tuple[float, float]:
        """GFLOPS of a child of the daemon, and of one of this process."""
        ...

    def train(self) -> None: ...
    def seen(self) -> ServiceSeen: ...
    def kill(self, pid: int) -> None: ...
    def awake(self, trainer: int) -> bool:
        """Whether the machine is kept awake for it."""
        ...

    def log(self) -> Path:
        """Of the daemon."""
        ...

    def remove(self) -> None: ...


def service(
    folder: Path,
    stage: ServiceStage | None = None,
    here: str = sys.platform,
    wait: float = _WAIT_SECONDS,
) -> ProbeFinding:
    """Whether launchd starts a killed daemon again, and its trainers go on meanwhile."""
    stage = stage or (LaunchdStage(folder) if here == "darwin" else LocalStage(folder))
    if why := stage.refuses():
        return warned(f"not tried: {why}", "See above, and try again: doctor --mac --only service")
    try:
        found = _seen(stage, wait)
    finally:  # also of one that is late, or interrupted
        stays = _removed(stage)
    if stays:
        cure = "Take the service away by hand: sudo elasticctl service uninstall"
        return failed(f"{found.value}; it stays: {stays}", cure)
    return found


def _seen(stage: ServiceStage, wait: float) -> ProbeFinding:
    try:
        found = _played(stage, wait)
    except OperationError as error:
        found = failed(str(error), _LOG)
    finally:
        logged = _end_of(stage.log())
        warn("\n".join(logged))
    if found.verdict != "fail":
        return found
    last = " / ".join(logged[-_LINES:]) or "nothing"
    return replace(found, value=f"{found.value}; its daemon logged last: {last}")


def _end_of(log: Path) -> list[str]:
    try:
        return log.read_text(errors="replace").splitlines()[-_PRINTED_LINES:]
    except OSError:
        return []


def _removed(stage: ServiceStage) -> str:
    """Why it stays, or nothing."""
    try:
        stage.remove()
    except OperationError as error:
        warn(f"the service stays: {error}")
        return str(error)
    return ""


def _played(stage: ServiceStage, wait: float) -> ProbeFinding:
    stage.install()
    theirs, ours = stage.speeds()
    stage.train()
    before = _until(stage, lambda seen: bool(seen.trainers) and seen.step > 0, wait)
    if before is None:
        return failed("no trainer makes a step", _LOG)
    asleep = [pid for pid in before.trainers if not stage.awake(pid)]
    stage.kill(before.daemon)
    begun = time.monotonic()
    again = _until(stage, lambda seen: seen.daemon not in (0, before.daemon), wait)
    if again is None:
        return failed(f"its daemon was killed, and none answers after {wait:g} s", _LOG)
    took = time.monotonic() - begun
    after = _until(stage, lambda seen: seen.step > before.step + 1, wait)
    if after is None:
        return failed("the job makes no step since its daemon was killed", _LOG)
    if after.trainers != before.trainers:
        value = f"trainers ended with their daemon: {_pids(before)}, then {_pids(after)}"
        return failed(value, "See that the service's file says AbandonProcessGroup, and send this")
    value = f"daemon back after {took:.1f} s, trainers unchanged ({_pids(after)})"
    value += f", {theirs:.0f} GFLOPS in the service where this terminal has {ours:.0f}"
    cures = [_SLOW] if theirs < ours * _OF_OWN_SPEED else []
    if asleep:
        value += f"; no power assertion for {asleep[0]}"
        cures.append(_AWAKE)
    return warned(value, ". ".join(cures)) if cures else passed(value)


def _pids(seen: ServiceSeen) -> str:
    return " ".join(map(str, seen.trainers)) or "none"


def _until(
    stage: ServiceStage, true: Callable[[ServiceSeen], bool], wait: float
) -> ServiceSeen | None:
    late = time.monotonic() + wait
    while time.monotonic() < late:
        seen = stage.seen()
        if seen.daemon and true(seen):
            return seen
        time.sleep(_LOOK_SECONDS)
    return None


def ran(command: Sequence[str]) -> str:
    """What a command prints; it has to end well."""
    try:
        done = run_command(command, _COMMAND_SECONDS)
    except PermissionError:  # it was to be ended, and is root's
        late = f"{command[0]} has not ended within {_COMMAND_SECONDS:g} s, and can't be ended"
        raise OperationError(late) from None
    if done.status:
        said = done.text.strip().rpartition("\n")[2]
        raise OperationError(said or f"{command[0]}: status {done.status}")
    return done.text


def submit(folder: Path, home: Path) -> None:
    """A job that goes on for longer than anybody looks."""
    job = folder / "job"
    job.mkdir()
    (job / "train.py").write_text(SCRIPT)
    (job / "job.toml").write_text(JOB)
    ran([*CTL, "submit", str(job), "--home", str(home)])


def speeds_at(home: Path, run: Callable[[Sequence[str]], str] = ran) -> tuple[float, float]:
    """GFLOPS of a child of that home's daemon, and of one of this process, by one program."""
    run([*CTL, "calibrate", "--seconds", str(_SPEED_SECONDS), "--home", str(home)])
    theirs = kept_speed(home)
    printed = run([sys.executable, "-P", "-m", MODULE, str(SIDE), str(_SPEED_SECONDS)])
    try:
        told = json.loads(next(line for line in printed.splitlines() if line.startswith("{")))
        ours = speed_of(NodeId("here"), told["device"], told["seconds"], 0.0)
    except (LookupError, StopIteration, TypeError, ValueError):
        raise OperationError(f"what measures GFLOPS prints something else: {printed!r}") from None
    if theirs is None or ours.error:
        raise OperationError(f"no GFLOPS are measured: {ours.error or 'the daemon keeps none'}")
    return theirs.gflops, ours.gflops


def seen_at(home: Path) -> ServiceSeen:
    """As the daemon of that home tells it."""
    try:
        told: dict[str, Any] = Client(home).request(ShowStatus())
        daemon = next((int(node["pid"] or 0) for node in told["nodes"]), 0)
        jobs = told["jobs"]
        ranks = tuple(int(rank["pid"] or 0) for job in jobs for rank in job["ranks"])
        return ServiceSeen(daemon, ranks, max((int(job["step"]) for job in jobs), default=0))
    except (ElasticdError, OSError, LookupError, TypeError, ValueError):
        return ServiceSeen()


def kill(pid: int) -> None:
    """As a crash would."""
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError as error:
        raise OperationError(f"the daemon {pid} can't be killed: {error.strerror}") from None


@dataclass(frozen=True, slots=True)
class LocalStage:
    """A cluster of one on this machine."""

    folder: Path

    def refuses(self) -> str:
        return ""

    def install(self) -> None:
        ran([*CTL, "local", "up", "-n", "1", "--keep", "--home", str(self.folder / "home")])

    def speeds(self) -> tuple[float, float]:
        return speeds_at(self.folder / "home" / "node-0")

    def train(self) -> None:
        submit(self.folder, self.folder / "home")

    def seen(self) -> ServiceSeen:
        return seen_at(self.folder / "home" / "node-0")

    def kill(self, pid: int) -> None:
        kill(pid)

    def awake(self, trainer: int) -> bool:
        return True  # what runs Linux are servers

    def log(self) -> Path:
        return self.folder / "home" / "node-0" / LOG_FILE

    def remove(self) -> None:
        ran([*CTL, "local", "down", "--home", str(self.folder / "home")])


@dataclass(frozen=True, slots=True)
class LaunchdStage:
    """A LaunchDaemon of this machine; none may be installed yet."""

    folder: Path
    run: Callable[[Sequence[str]], str] = ran
    ask: Tool = tool
    own: Callable[[], LaunchdService] = field(
        default=lambda: LaunchdService.for_this_machine(default_home(), user=invoking_user())
    )
    root: bool = field(default_factory=lambda: os.geteuid() == 0)

    @property
    def home(self) -> Path:
        return self.folder / "home"

    def _as_root(self, *words: str) -> None:
        self.run([*(() if self.root else SUDO), *CTL, *words])

    def refuses(self) -> str:
        if there := self.own().there():
            return f"{there} is there, and is left alone"
        if not self.root and self.ask([*SUDO, "true"]).status:
            return "it takes root: run 'sudo -v' in this terminal before"
        return ""

    def install(self) -> None:
        port = ("--listen", "127.0.0.1:7079")
        self.run([*CTL, "cluster", "init", "--node-id", "probe", *port, "--home", str(self.home)])
        user = ("--user", invoking_user())
        self._as_root("service", "install", *user, "--home", str(self.home))

    def speeds(self) -> tuple[float, float]:
        return speeds_at(self.home, self.run)

    def train(self) -> None:
        submit(self.folder, self.home)

    def seen(self) -> ServiceSeen:
        return seen_at(self.home)

    def kill(self, pid: int) -> None:
        kill(pid)

    def awake(self, trainer: int) -> bool:
        for each in psutil.process_iter():
            with contextlib.suppress(*UNSEEN):
                if each.name() == "caffeinate" and each.cmdline()[-1:] == [str(trainer)]:
                    return listed(self.ask, each.pid)
        return False

    def log(self) -> Path:
        return LaunchdService.for_this_machine(self.home, user=invoking_user()).plist.log

    def remove(self) -> None:
        if self.own().path.exists():
            self._as_root("service", "uninstall", "--home", str(self.home))
