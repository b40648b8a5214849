"""The service as a probe: what a Mac may do wrong with it is told with its cure."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from elasticd.cli.mac import choosing
from elasticd.cli.mac.probes import PROBES
from elasticd.cli.mac.serving import LaunchdStage, ServiceSeen, service, speeds_at
from elasticd.core.words.codec import to_plain
from elasticd.errors import OperationError
from elasticd.launchd.plist import DaemonPlist
from elasticd.launchd.service import LaunchdService
from elasticd.preflight.seen import SPEED_NAME
from elasticd.preflight.speeds import SIDE, SpeedSeen
from elasticd.shell.control.speeddesk import MODULE
from elasticd.supervision.service import Result, invoking_user
from elasticd.types import NodeId

SHORT_SECONDS = 0.5


@dataclass
class Played:
    """A service that does as it should."""

    why: str = ""
    now: ServiceSeen = field(default_factory=ServiceSeen)
    did: list[str] = field(default_factory=list)
    holds: bool = True
    logged: Path = Path("/nowhere")
    gflops: tuple[float, float] = (60.0, 100.0)

    def refuses(self) -> str:
        return self.why

    def install(self) -> None:
        self.did.append("install")
        self.now = ServiceSeen(10)

    def speeds(self) -> tuple[float, float]:
        assert not self.now.trainers, "nothing else computes"
        return self.gflops

    def train(self) -> None:
        self.now = ServiceSeen(10, (20,))

    def seen(self) -> ServiceSeen:
        found = self.now
        self.now = replace(found, step=found.step + 1)
        return found

    def kill(self, pid: int) -> None:
        self.did.append(f"kill {pid}")
        self.now = replace(self.now, daemon=11)

    def awake(self, trainer: int) -> bool:
        return self.holds

    def log(self) -> Path:
        return self.logged

    def remove(self) -> None:
        self.did.append("remove")


class Idle(Played):
    def train(self) -> None:
        pass


class Gone(Played):
    def kill(self, pid: int) -> None:
        self.now = ServiceSeen()

    def seen(self) -> ServiceSeen:
        return Played.seen(self) if self.now.daemon else self.now


class Died(Played):
    def kill(self, pid: int) -> None:
        self.now = replace(self.now, daemon=11, trainers=(21,))


class Still(Played):
    def seen(self) -> ServiceSeen:
        return replace(self.now, step=1) if self.now.trainers else self.now


class Refused(Played):
    def install(self) -> None:
        raise OperationError("launchctl bootstrap: Input/output error (status 5)")


class Stays(Played):
    def remove(self) -> None:
        self.did.append("remove")
        raise OperationError("a password is required")


def test_a_service_whose_daemon_is_killed_goes_on_with_its_trainers(tmp_path: Path) -> None:
    stage = Played()
    found = service(tmp_path, stage)
    assert found.verdict == "pass" and "trainers unchanged (20)" in found.value
    assert found.value.endswith(", 60 GFLOPS in the service where this terminal has 100")
    assert stage.did == ["install", "kill 10", "remove"]


@pytest.mark.parametrize(
    ("stage", "verdict", "value", "cure"),
    [
        (Played("a service is there"), "warn", "not tried: a service", "--only service"),
        (Played(holds=False), "warn", "no power assertion for 20", "pmset -a sleep 0"),
        (Played(gflops=(49.0, 100.0)), "warn", "49 GFLOPS in the serv", "not as a service"),
        (Refused(), "fail", "Input/output error", "the bundle, which has more"),
        (Idle(), "fail", "no trainer makes a step", "what the daemon logged last"),
        (Gone(), "fail", "none answers after 0.5 s", "what the daemon logged last"),
        (Still(), "fail", "makes no step since", "what the daemon logged last"),
        (Died(), "fail", "trainers ended with their daemon: 20, then 21", "AbandonProcessGroup"),
        (Stays(), "fail", "it stays: a password is required", "sudo elasticctl service uninst"),
    ],
)
def test_one_that_does_not_is_told(
    tmp_path: Path, stage: Played, verdict: str, value: str, cure: str
) -> None:
    found = service(tmp_path, stage, wait=SHORT_SECONDS)
    assert (found.verdict, value in found.value, cure in found.cure) == (verdict, True, True), found
    assert stage.did[-1:] == ([] if stage.why else ["remove"]), "it leaves a service behind"


def test_what_its_daemon_logged_last_is_told(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "daemon.log"
    log.write_text("".join(f"line {number}\n" for number in range(99)))
    found = service(tmp_path, Idle(logged=log), wait=SHORT_SECONDS)
    assert found.value.endswith("its daemon logged last: line 97 / line 98")
    assert "line 80\n" in capfd.readouterr().err, "the bundle gets more"
    assert "logged" not in service(tmp_path, Played(logged=log)).value


@pytest.mark.parametrize(
    ("device", "seconds", "why"),
    [
        ("gpu", [0.001] * 9, ""),
        ("gpu", [], "too few times"),
        ("gpu", None, "prints something else"),
    ],
)
def test_the_service_is_measured_by_the_program_that_measures_this_terminal(
    tmp_path: Path, device: str, seconds: list[float] | None, why: str
) -> None:
    did: list[Sequence[str]] = []
    kept = SpeedSeen(NodeId("probe"), gflops=7.0)

    def run(command: Sequence[str]) -> str:
        did.append(command)
        (tmp_path / SPEED_NAME).write_text(json.dumps(to_plain(kept)))
        return "a warning\n" + json.dumps({"device": device, "seconds": seconds})

    if why:
        with pytest.raises(OperationError, match=why):
            speeds_at(tmp_path, run)
    else:
        theirs, ours = speeds_at(tmp_path, run)
        assert theirs == 7.0 and ours == pytest.approx(2 * SIDE**3 / 1e6)
    assert "calibrate" in did[0] and did[1][3] == MODULE


class Interrupted(Played):
    def train(self) -> None:
        raise KeyboardInterrupt


def test_one_that_is_interrupted_leaves_no_service_behind(tmp_path: Path) -> None:
    stage = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        service(tmp_path, stage)
    assert stage.did == ["install", "remove"]


def stage_of(tmp_path: Path, status: int, *, root: bool, did: list[Sequence[str]]) -> LaunchdStage:
    plist = DaemonPlist(tmp_path / "home", "ann", tmp_path, "/usr/bin")
    own = LaunchdService(plist, folder=tmp_path, rivals=((tmp_path / "agent", "take it away"),))

    def run(command: Sequence[str]) -> str:
        did.append(command)
        return ""

    return LaunchdStage(tmp_path, run, lambda command: Result(status, ""), lambda: own, root)


def test_what_takes_root_is_run_by_sudo_and_a_service_that_is_there_is_left_alone(
    tmp_path: Path,
) -> None:
    did: list[Sequence[str]] = []
    stage = stage_of(tmp_path, 1, root=False, did=did)
    assert "sudo -v" in stage.refuses()
    stage = stage_of(tmp_path, 0, root=False, did=did)
    assert stage.refuses() == "" and stage.log() == tmp_path / "home/daemon.log"
    stage.install()
    stage.remove()
    assert [each[:2] == ["sudo", "-n"] for each in did] == [False, True], "nothing is installed yet"
    assert did[1][-5:-2] == ["install", "--user", invoking_user()]
    (tmp_path / "agent").touch()
    assert f"{tmp_path / 'agent'} is there, and is left alone" in stage.refuses()
    stage.own().path.touch()
    assert "is left alone" in stage.refuses()
    stage.remove()
    assert did[2][-3:] == ["uninstall", "--home", str(tmp_path / "home")]
    did.clear()
    stage_of(tmp_path, 1, root=True, did=did).install()
    assert [each[0] for each in did] == [sys.executable] * 2


@pytest.mark.parametrize(("here", "asks", "times"), [
    ("darwin", True, 1), ("darwin", False, 0), ("linux", True, 0),
])  # fmt: skip
def test_the_password_is_asked_for_once(
    here: str, asks: bool, times: int, capsys: pytest.CaptureFixture[str]
) -> None:
    did: list[Sequence[str]] = []

    def run(command: Sequence[str]) -> int:
        did.append(command)
        return 0

    choosing.ask_for_root(PROBES, run, here, asks)
    assert did == [("sudo", "-v")] * times and ("password" in capsys.readouterr().out) == bool(
        times
    )
    choosing.ask_for_root([each for each in PROBES if not each.root], run, here, asks)
    assert len(did) == times


@pytest.mark.process
def test_a_local_clusters_keeper_does_as_launchd(tmp_path_factory: pytest.TempPathFactory) -> None:
    found = service(tmp_path_factory.mktemp("s"), here="linux")
    assert found.verdict != "fail" and "GFLOPS" in found.value, found  # it may be slow by chance
