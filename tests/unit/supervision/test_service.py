from __future__ import annotations

import configparser
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from elasticd.errors import OperationError, UsageError
from elasticd.supervision.service import (
    UNIT_NAME,
    Result,
    SystemdService,
    SystemSystemctl,
    UnitFile,
    quote,
    run_command,
)


@dataclass
class FakeSystemctl:
    """Does what systemctl of systemd 252 does with one unit folder: exit codes and messages too."""

    folder: Path
    calls: list[tuple[str, ...]] = field(default_factory=list)
    loaded: bool = False
    enabled: bool = False
    pid: int = 0

    def run(self, *arguments: str) -> Result:
        self.calls.append(arguments)
        verb, *rest = arguments
        if verb == "daemon-reload":
            self.loaded = (self.folder / UNIT_NAME).exists()
            return Result(0, "")
        assert UNIT_NAME in rest
        return getattr(self, f"_{verb}")(*rest)  # type: ignore[no-any-return]

    def _enable(self, *_: str) -> Result:
        if not (self.folder / UNIT_NAME).exists():
            return Result(1, f"Failed to enable unit: Unit file {UNIT_NAME} does not exist.")
        self.enabled = True
        return Result(0, "")

    def _disable(self, *arguments: str) -> Result:
        if not (self.folder / UNIT_NAME).exists():
            return Result(1, f"Failed to disable unit: Unit file {UNIT_NAME} does not exist.")
        self.enabled = False
        if "--now" in arguments:
            self.pid = 0
        return Result(0, "")

    def _restart(self, *_: str) -> Result:
        return self._start()

    def _start(self, *_: str) -> Result:
        if not self.loaded:
            return Result(5, f"Failed to start {UNIT_NAME}: Unit {UNIT_NAME} not found.")
        self.pid = self.pid or 4100
        return Result(0, "")

    def _stop(self, *_: str) -> Result:
        if not self.loaded:
            return Result(5, f"Failed to stop {UNIT_NAME}: Unit {UNIT_NAME} not loaded.")
        self.pid = 0
        return Result(0, "")

    def _show(self, *_: str) -> Result:
        lines = [
            f"LoadState={'loaded' if self.loaded else 'not-found'}",
            f"ActiveState={'active' if self.pid else 'inactive'}",
            f"SubState={'running' if self.pid else 'dead'}",
            f"MainPID={self.pid}",
            "Result=success",
        ]
        return Result(0, "\n".join(lines))


@pytest.fixture
def service(tmp_path: Path) -> SystemdService:
    unit = UnitFile(tmp_path / "a home", None, environment=(("LANG", "C.UTF-8"),))
    folder = tmp_path / "units"
    return SystemdService(unit, FakeSystemctl(folder), folder)


def fake(service: SystemdService) -> FakeSystemctl:
    assert isinstance(service.systemctl, FakeSystemctl)
    return service.systemctl


def test_a_whole_life(service: SystemdService) -> None:
    assert service.status().text == "not installed"
    assert "enabled and started" in (said := service.install())
    assert said.endswith(f"Its home is {service.home}"), "sudo drops ELASTICD_HOME"
    assert service.path.read_text() == service.unit.text()
    assert service.path.stat().st_mode & 0o777 == 0o644
    assert service.unit.home.stat().st_mode & 0o777 == 0o700
    assert service.status().running and service.status().pid == 4100
    assert service.stop() == "the service is stopped"
    assert not service.status().running and service.status().installed
    service.start()
    assert service.status().text == "active (running), last result: success"
    service.install()
    assert "removed" in service.uninstall()
    assert not service.path.exists() and not fake(service).enabled
    assert not service.status().installed and service.unit.home.is_dir()
    assert "nothing to do" in service.uninstall()


def test_what_is_installed_and_runs_is_left_alone_and_what_was_is_put_back(
    service: SystemdService,
) -> None:
    service.install()
    before, calls = service.installed(), fake(service).calls
    calls.clear()
    assert "nothing to do" in (said := service.install()) and str(service.home) in said
    assert {verb for verb, *_ in calls} == {"show", "enable"}
    other = replace(service, unit=replace(service.unit, environment=()))
    assert "enabled and started" in other.install() and service.installed() != before
    assert "of before is back" in other.put_back(before)
    assert service.installed() == before and service.status().running
    assert "removed again" in other.put_back(None)
    assert service.installed() is None and not service.status().installed


def test_dry_run_touches_nothing(service: SystemdService, tmp_path: Path) -> None:
    text = service.install(dry_run=True)
    assert service.unit.text() in text and f"# would run: systemctl enable {UNIT_NAME}" in text
    for method in (service.uninstall, service.start, service.stop):
        assert "# would" in method(dry_run=True)
    assert list(tmp_path.iterdir()) == [] and fake(service).calls == []


def test_what_systemctl_says_is_what_the_user_reads(service: SystemdService) -> None:
    with pytest.raises(OperationError, match=r"systemctl start .*not found"):
        service.start()
    with pytest.raises(OperationError, match="not loaded"):
        service.stop()


def test_an_unwritable_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    unit = UnitFile(tmp_path / "home", None)
    service = SystemdService(unit, FakeSystemctl(tmp_path), tmp_path / "file" / "units")
    with pytest.raises(OperationError, match="units"):
        service.install()


def test_a_missing_program_is_an_error() -> None:
    with pytest.raises(OperationError, match="no such program"):
        run_command(["/no/such/systemctl"], 1.0)
    with pytest.raises(OperationError, match="did not end"):
        run_command([sys.executable, "-c", "import time; time.sleep(60)"], 0.1)
    assert run_command([sys.executable, "-c", "print('ü'); exit(3)"], 20.0) == Result(3, "ü")


def test_scopes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    mine = SystemdService.for_this_machine(tmp_path / "home", user=None)
    assert mine.path == tmp_path / "systemd" / "user" / UNIT_NAME
    assert mine.systemctl == SystemSystemctl(user=True)
    assert ("HOME", str(tmp_path)) in mine.unit.environment
    system = SystemdService.for_this_machine(tmp_path / "home", user="root")
    assert system.path == Path("/etc/systemd/system") / UNIT_NAME
    assert "User=root" in system.unit.text() and "WantedBy=multi-user" in system.unit.text()
    assert not [name for name, _ in system.unit.environment if name == "HOME"]


def parsed(unit: UnitFile) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(unit.text())
    return parser


def test_what_the_file_promises() -> None:
    service = parsed(UnitFile(Path("/var/lib/elasticd"), "train"))["Service"]
    expected = {
        "Type": "notify",
        "KillMode": "process",
        "Restart": "on-failure",
        "RestartPreventExitStatus": "2 4",
        "OOMPolicy": "continue",
        "User": "train",
        "WorkingDirectory": "/var/lib/elasticd",
        "TimeoutStopSec": "90",
        "LimitNOFILE": "65536",
        "NoNewPrivileges": "yes",
        "LockPersonality": "yes",
        "ProtectSystem": "full",
    }
    assert {name: service[name] for name in expected} == expected
    assert float(service["WatchdogSec"]) > 0
    within = parsed(UnitFile(Path("/usr/local/elasticd"), "train"))["Service"]
    assert "ProtectSystem" not in within, "it couldn't write its own home"
    own = parsed(UnitFile(Path("/home/ann/elasticd"), None))["Service"]
    assert not [name for name in own if name.startswith("Protect")], "an account can't close it"
    assert not {"PrivateDevices", "ProtectClock", "DevicePolicy"} & {*service}, "it needs its GPU"


def test_quoting() -> None:
    assert quote('a "b" \\ $HOME 5%', command=True) == '"a \\"b\\" \\\\ $$HOME 5%%"'
    assert quote("A=$x") == '"A=$x"'
    with pytest.raises(UsageError, match="control"):
        quote("a\nb")


@pytest.mark.process
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here")
@pytest.mark.parametrize("user", [None, "root"])
def test_systemd_accepts_the_file(tmp_path: Path, user: str | None) -> None:
    home = tmp_path / 'odd "50%" $HOME \\ home'
    home.mkdir()
    environment = (("LANG", "C.UTF-8"), ("PATH", os.environ["PATH"]), ("ODD", 'a "b" % $c'))
    path = tmp_path / UNIT_NAME
    path.write_text(UnitFile(home, user, environment=environment).text())
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", path],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=60,
    )
    complaints = [line for line in done.stdout.decode().splitlines() if UNIT_NAME in line]
    assert complaints == [] and done.returncode == 0, done.stdout.decode()
