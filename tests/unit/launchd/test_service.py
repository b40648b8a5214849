from __future__ import annotations

import plistlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from elasticd.errors import OperationError, UsageError
from elasticd.launchd.plist import LABEL, DaemonPlist
from elasticd.launchd.service import TARGET, LaunchdService, SystemLaunchctl
from elasticd.supervision.service import Result, invoking_user


@dataclass
class FakeLaunchctl:
    """launchctl of macOS 14 and its launchd, for one service: statuses, messages, slow unloading.

    Attributes:
        unload_calls: how many calls a ``bootout`` goes on in the background.
    """

    unload_calls: int = 0
    calls: list[tuple[str, ...]] = field(default_factory=list)
    enabled: bool = True
    loaded: Path | None = None
    pid: int = 0
    exit_code: str = "(never exited)"
    leaving: int = 0

    def run(self, *arguments: str) -> Result:
        self.calls.append(arguments)
        if self.leaving:
            self.leaving -= 1
            if not self.leaving:
                self.loaded = None
        verb, *rest = arguments
        verbs: dict[str, Callable[..., Result]] = {
            "enable": self._enable,
            "bootstrap": self._bootstrap,
            "bootout": self._bootout,
            "kickstart": self._kickstart,
            "print": self._print,
        }
        return verbs[verb](*rest)

    def _enable(self, target: str) -> Result:
        assert target == TARGET
        self.enabled = True
        return Result(0, "")

    def _bootstrap(self, domain: str, path: str) -> Result:
        assert domain == "system"
        if self.leaving:
            return Result(37, "Bootstrap failed: 37: Operation already in progress")
        failed = Result(5, "Bootstrap failed: 5: Input/output error")
        if self.loaded is not None or not self.enabled or not _acceptable(Path(path)):
            return failed
        self.loaded = Path(path)
        if plistlib.loads(self.loaded.read_bytes())["RunAtLoad"]:
            self.pid = 4100
        return Result(0, "")

    def _bootout(self, target: str) -> Result:
        if self.loaded is None:
            return Result(3, "Boot-out failed: 3: No such process")
        self.pid = 0
        if self.unload_calls:
            self.leaving = self.unload_calls
            return Result(36, "Boot-out failed: 36: Operation now in progress")
        self.loaded = None
        return Result(0, "")

    def _kickstart(self, *arguments: str) -> Result:
        if self.loaded is None:
            return Result(113, f'Could not find service "{LABEL}" in domain for system')
        if "-k" in arguments:
            self.pid += 1
        self.pid = self.pid or 4100
        return Result(0, "")

    def _print(self, target: str) -> Result:
        if self.loaded is None:
            return Result(
                113, f'Bad request.\nCould not find service "{LABEL}" in domain for system'
            )
        lines = [
            f"{TARGET} = {{",
            f"\tpath = {self.loaded}",
            f"\tstate = {'running' if self.pid else 'not running'}",
            "\tevent triggers = {",
            "\t\tstate = 7",
            "\t}",
            *([f"\tpid = {self.pid}"] if self.pid else []),
            f"\tlast exit code = {self.exit_code}",
            "}",
        ]
        return Result(0, "\n".join(lines))


def _acceptable(path: Path) -> bool:
    return path.exists() and path.suffix == ".plist" and path.stat().st_mode & 0o022 == 0


def mode_only(path: Path) -> None:
    path.chmod(0o644)


@pytest.fixture
def launchctl() -> FakeLaunchctl:
    return FakeLaunchctl()


@pytest.fixture
def service(tmp_path: Path, launchctl: FakeLaunchctl) -> LaunchdService:
    folder = tmp_path / "LaunchDaemons"
    folder.mkdir()
    plist = DaemonPlist(tmp_path / "home", invoking_user(), tmp_path, "/usr/bin")
    return LaunchdService(plist, launchctl, folder, mode_only, lambda _: None)


def test_a_whole_life(service: LaunchdService, launchctl: FakeLaunchctl) -> None:
    assert service.status().text == "not installed"
    assert "enabled and started" in service.install()
    assert service.path.read_bytes() == service.plist.data()
    assert service.path.stat().st_mode & 0o777 == 0o644
    assert [path.name for path in service.folder.iterdir()] == [f"{LABEL}.plist"]
    assert service.plist.home.is_dir()
    status = service.status()
    assert status.running and status.pid == 4100 and status.installed
    assert status.text == "running, last exit code: (never exited)"
    assert service.stop() == "the service is stopped"
    assert service.status().text == "installed, not loaded"
    assert service.stop() == "the service was not running"
    assert service.start() == "the service is started"
    assert service.restart() == "the service is restarted" and service.status().pid == 4101
    assert service.start() == "the service is started" and service.status().pid == 4101
    assert "removed" in service.uninstall()
    assert not service.path.exists() and launchctl.loaded is None
    assert "nothing to do" in service.uninstall()


def test_an_installed_service_is_replaced(
    service: LaunchdService, launchctl: FakeLaunchctl
) -> None:
    service.install()
    other = replace(service, plist=replace(service.plist, path="/bin"))
    other.install()
    assert b"<string>/bin</string>" in service.path.read_bytes()
    assert launchctl.loaded == service.path


def test_what_is_installed_and_runs_is_left_alone(
    service: LaunchdService, launchctl: FakeLaunchctl
) -> None:
    service.install()
    before = launchctl.pid, service.path.stat().st_mtime_ns
    launchctl.calls.clear()
    assert "nothing to do" in service.install()
    assert {verb for verb, *_ in launchctl.calls} == {"print"}
    assert (launchctl.pid, service.path.stat().st_mtime_ns) == before
    service.stop()
    assert "enabled and started" in service.install() and launchctl.pid


def test_what_was_installed_before_is_put_back(
    service: LaunchdService, launchctl: FakeLaunchctl
) -> None:
    assert service.installed() is None
    service.install()
    before = service.installed()
    other = replace(service, plist=replace(service.plist, path="/bin"))
    other.install()
    assert "of before is back" in other.put_back(before)
    assert service.installed() == before == service.plist.data() and service.status().running
    assert "removed again" in service.put_back(None)
    assert service.installed() is None and launchctl.loaded is None


@pytest.mark.parametrize("folder", ["Documents", "Desktop", "Downloads/deeper"])
def test_where_macos_lets_no_service_read_none_is_installed(
    service: LaunchdService, launchctl: FakeLaunchctl, tmp_path: Path, folder: str
) -> None:
    kept = tmp_path / folder
    kept.mkdir(parents=True)
    link = tmp_path / "link"
    link.symlink_to(kept)
    for changed in (
        replace(service.plist, home=kept / "home"),
        replace(service.plist, home=link / "home"),
        replace(service.plist, python=str(kept / ".venv/bin/python")),
    ):
        for dry_run in (True, False):
            with pytest.raises(UsageError, match="macOS lets no service read: move it"):
                replace(service, plist=changed).install(dry_run)
    assert launchctl.calls == [] and service.installed() is None
    beside = tmp_path / "Documents of mine"
    replace(service, plist=replace(service.plist, home=beside)).install()


def test_unloading_that_takes_its_time_is_waited_for(
    service: LaunchdService, launchctl: FakeLaunchctl
) -> None:
    service.install()
    launchctl.unload_calls = 5
    service.install()
    assert launchctl.loaded == service.path and launchctl.pid
    assert service.stop() == "the service is stopped"
    assert launchctl.loaded is None


def test_one_that_never_ends_is_an_error(service: LaunchdService, launchctl: FakeLaunchctl) -> None:
    service.install()
    launchctl.unload_calls = 10_000
    with pytest.raises(OperationError, match="has not ended"):
        service.stop()


def test_bootstrap_while_another_unload_goes_on(
    service: LaunchdService, launchctl: FakeLaunchctl
) -> None:
    service.install()
    launchctl.unload_calls = 3
    launchctl.run("bootout", TARGET)
    service.start()
    assert launchctl.loaded == service.path


def test_a_disabled_service_is_enabled_first(
    service: LaunchdService, launchctl: FakeLaunchctl
) -> None:
    launchctl.enabled = False
    service.install()
    assert launchctl.enabled and service.status().running


def test_error_5_of_a_refused_file_is_reported(service: LaunchdService) -> None:
    refused = replace(service, give=lambda path: path.chmod(0o666))
    with pytest.raises(OperationError, match=r"bootstrap .*5: Input/output error"):
        refused.install()


def test_not_installed(service: LaunchdService) -> None:
    with pytest.raises(OperationError, match="install the service first"):
        service.start()
    with pytest.raises(OperationError, match="113"):
        service.restart()


def test_without_root_nothing_is_left_behind(service: LaunchdService) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(1, "Operation not permitted")

    with pytest.raises(OperationError, match="needs root"):
        replace(service, give=refuse).install()
    assert list(service.folder.iterdir()) == []


def test_dry_run_touches_nothing(
    service: LaunchdService, launchctl: FakeLaunchctl, tmp_path: Path
) -> None:
    text = service.install(dry_run=True)
    assert service.plist.data().decode() in text
    assert f"# would run: launchctl bootstrap system {service.path}" in text
    for method in (service.uninstall, service.start, service.stop, service.restart):
        assert "# would" in method(dry_run=True)
    assert launchctl.calls == [] and list(service.folder.iterdir()) == []
    assert not service.plist.home.exists()


def test_the_real_machine(tmp_path: Path) -> None:
    service = LaunchdService.for_this_machine(tmp_path / "home", user=invoking_user())
    assert service.path == Path("/Library/LaunchDaemons/com.elasticd.daemon.plist")
    assert isinstance(service.launchctl, SystemLaunchctl)
    assert "would write" in service.install(dry_run=True)
    with pytest.raises(UsageError, match="no user"):
        LaunchdService.for_this_machine(tmp_path, user="nobody-of-that-name")
