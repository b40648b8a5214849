"""elasticctl service: which service is meant. What it then does is tested beside its own code."""

from __future__ import annotations

import getpass
import json
import os
import plistlib
import pwd
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from elasticd.cli import cluster
from elasticd.cli import service as commands
from elasticd.cli.daemons import name as name_process
from elasticd.cli.logend import printed_lines
from elasticd.cli.service import (
    Service,
    install_and_wait,
    installed,
    own_agent,
    require_same,
    restart_and_wait,
    service,
    start_and_wait,
)
from elasticd.client import restarting
from elasticd.errors import OperationError, UsageError
from elasticd.launchd.plist import DaemonPlist
from elasticd.launchd.service import LaunchdService
from elasticd.settings.places import DAEMON_FILE
from elasticd.supervision.service import Result, invoking_user
from tests.unit.client.fake_daemon import FakeDaemon
from tests.unit.launchd.fake_launchctl import FakeLaunchctl
from tests.unit.launchd.test_service import mode_only, taken

Ctl = Callable[..., tuple[int, str, str]]


@pytest.mark.parametrize(
    "verb", ["install", "uninstall", "start", "restart", "stop", "status", "logs"]
)
def test_a_dry_run_shows_and_changes_nothing(verb: str, ctl: Ctl, home: Path) -> None:
    code, out, err = ctl("service", verb, "--dry-run", "--home", home)
    assert (code, err) == (0, "")
    assert out.startswith("# ")
    assert not home.exists()
    code, out, _ = ctl("--json", "service", verb, "--dry-run", "--home", home)
    found = json.loads(out)
    assert found["dry_run"] is True and found.get("home") == (
        str(home) if verb == "install" else None
    )


def test_the_home_reaches_the_file(home: Path) -> None:
    unit = service(home, None, "linux").install(dry_run=True)
    assert f'"run" "--home" "{home}"' in unit
    shown = service(home, None, "darwin").install(dry_run=True)
    plist = plistlib.loads(shown[shown.index("<?xml") : shown.index("</plist>") + 8].encode())
    assert plist["ProgramArguments"][-2:] == ["--home", str(home)]
    assert plist["UserName"]


@pytest.mark.skipif(sys.platform == "darwin", reason="XDG_STATE_HOME has no meaning there")
def test_the_default_home_is_the_callers(tmp_path: Path) -> None:
    if os.environ.get("SUDO_USER"):
        pytest.skip("under sudo the caller is somebody else")
    unit = service(None, None, "linux").install(dry_run=True)
    assert f'"{tmp_path}/state/elasticd"' in unit
    assert f"User={getpass.getuser()}" in unit or os.geteuid() != 0


@pytest.mark.parametrize("named", [[], ["--home", "/nowhere"]])
def test_an_unknown_user(named: list[str], ctl: Ctl) -> None:
    code, _, err = ctl("service", "install", "--dry-run", "--user", "no-such-user", *named)
    assert (code, err) == (2, "elasticctl: there is no user 'no-such-user' on this machine\n")
    with pytest.raises(UsageError):
        service(Path("/x"), "no-such-user", "darwin")


def test_an_agent_is_of_whoever_is_logged_in_on_a_mac(ctl: Ctl, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"for macOS: .* without sudo"):
        own_agent(tmp_path, "linux", root=False)
    with pytest.raises(UsageError, match="without sudo, as who is logged in"):
        own_agent(tmp_path, "darwin", root=True)
    found = own_agent(tmp_path, "darwin", root=False)
    assert found.domain == f"gui/{os.geteuid()}" and found.home == tmp_path
    person = Path(pwd.getpwuid(os.geteuid()).pw_dir)
    assert found.path == person / "Library/LaunchAgents/com.elasticd.daemon.plist"
    code, _, err = ctl("service", "install", "--agent", "--user", getpass.getuser())
    assert (code, err.count("leave --user out")) == (2, 1)


@pytest.mark.skipif(sys.platform == "darwin", reason="its own may be installed there")
def test_where_none_is_installed_the_usual_one_is_meant(home: Path) -> None:
    found = installed(home, None, "darwin")
    assert isinstance(found, LaunchdService) and (found.agent, found.home) == (None, home)
    assert not isinstance(installed(home, None, "linux"), LaunchdService)
    with pytest.raises(UsageError, match="no-such-user"):
        installed(home, "no-such-user", "darwin")


@pytest.mark.skipif(sys.platform == "darwin", reason="a Mac has them")
@pytest.mark.parametrize("verb", ["install", "uninstall"])
def test_elsewhere_there_are_no_agents(verb: str, ctl: Ctl, home: Path) -> None:
    code, out, err = ctl("service", verb, "--agent", "--home", home)
    assert (code, out) == (2, "") and "--agent is for macOS" in err
    assert not home.exists()


@pytest.mark.parametrize("name", ["elasticd", "100% of it", "two words"])
@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_the_service_of_another_home_is_left_alone(
    platform: str, name: str, tmp_path: Path
) -> None:
    def of(home: Path) -> Service:
        return replace(service(home, None, platform), folder=tmp_path)  # type: ignore[type-var]

    home, other = tmp_path / name, tmp_path / "other"
    installed = of(home)
    require_same(installed, other)  # nothing is installed
    text = installed.install(dry_run=True).partition("\n")[2]
    path = installed.path  # type: ignore[attr-defined]
    path.write_text(text[: text.index("# would run")])
    for verb in (of(home), of(other)):
        require_same(verb, None)
        require_same(verb, home)
        with pytest.raises(UsageError, match=r"is of .*, not of .*other: name that home"):
            require_same(verb, other)


def launchd(tmp_path: Path, launchctl: FakeLaunchctl, path: str = "/usr/bin") -> LaunchdService:
    plist = DaemonPlist(tmp_path / "home", invoking_user(), tmp_path, path)
    return LaunchdService(plist, launchctl, tmp_path, mode_only, lambda _: None, lint=taken)


class Daemons:
    """Of homes: they log, and answer or don't."""

    def __init__(self, comes_up: bool = True) -> None:
        self.comes_up = comes_up
        self.asked: list[Path] = []

    def ready(self, home: Path) -> None:
        self.asked.append(home)
        (home / "daemon.log").write_text("".join(f"line {number}\n" for number in range(99)))
        if not self.comes_up:
            raise OperationError("the daemon did not come back")


@pytest.mark.process
def test_an_install_whose_daemon_does_not_come_up_leaves_the_old_service(tmp_path: Path) -> None:
    launchctl, daemons = FakeLaunchctl(), Daemons()
    old = launchd(tmp_path, launchctl)
    assert "enabled and started" in install_and_wait(old, daemons.ready)
    assert daemons.asked == [tmp_path / "home"]
    assert "nothing to do" in install_and_wait(old, daemons.ready)

    daemons.comes_up = False
    new = launchd(tmp_path, launchctl, "/bin")
    with pytest.raises(OperationError, match="did not come back") as failed:
        install_and_wait(new, daemons.ready)
    assert "  line 98\n" in str(failed.value) and "line 3\n" not in str(failed.value)
    assert str(failed.value).endswith(f"is back in {old.path}, and started")
    assert old.installed() == old.plist.data() and old.status().running

    # What was there already is not taken away, whatever becomes of its daemon.
    with pytest.raises(OperationError, match="did not come back"):
        install_and_wait(old, daemons.ready)
    for verb in (start_and_wait, restart_and_wait):
        with pytest.raises(OperationError, match="line 98"):
            verb(old, daemons.ready)
    daemons.comes_up = True
    assert restart_and_wait(old, daemons.ready) == "the service is restarted"
    assert old.status().running


@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_install_that_is_interrupted_leaves_the_old_service(
    tmp_path: Path, number: int, capsys: pytest.CaptureFixture[str]
) -> None:
    old = launchd(tmp_path, FakeLaunchctl())
    install_and_wait(old, Daemons().ready)

    def hung_up(home: Path) -> None:
        os.kill(os.getpid(), number)

    new = replace(old, plist=replace(old.plist, path="/bin"))
    before = signal.signal(number, signal.default_int_handler)  # nohup has SIGHUP ignored
    try:
        with pytest.raises(KeyboardInterrupt):
            install_and_wait(new, hung_up)
    finally:
        signal.signal(number, before)
    assert "of before is back" in capsys.readouterr().err
    assert old.installed() == old.plist.data() and old.status().running


@pytest.mark.parametrize("first", [True, False])
def test_an_install_that_is_interrupted_between_two_services(tmp_path: Path, first: bool) -> None:
    """The old one is taken away by then, the new one not there yet; and a second Ctrl-C comes."""

    class Struck(FakeLaunchctl):
        strikes = False

        def run(self, *arguments: str) -> Result:
            if self.strikes and arguments[0] in ("enable", "bootstrap"):
                os.kill(os.getpid(), signal.SIGINT)
            return super().run(*arguments)

    launchctl = Struck()
    old = launchd(tmp_path, launchctl)
    if not first:
        old.install()
    launchctl.strikes = True
    new = replace(old, plist=replace(old.plist, path="/bin"))
    with pytest.raises(KeyboardInterrupt):
        install_and_wait(new, Daemons().ready)
    assert old.installed() == (None if first else old.plist.data())
    assert old.status().running == (not first)


@pytest.mark.process
def test_a_first_install_whose_daemon_does_not_come_up_leaves_nothing(tmp_path: Path) -> None:
    launchctl = FakeLaunchctl()
    found = launchd(tmp_path, launchctl)
    with pytest.raises(OperationError, match="was removed again"):
        install_and_wait(found, Daemons(comes_up=False).ready)
    assert launchctl.loaded is None and found.installed() is None


@pytest.mark.process
def test_an_install_that_launchd_refuses_leaves_the_old_service(tmp_path: Path) -> None:
    launchctl, daemons = FakeLaunchctl(), Daemons()
    old = launchd(tmp_path, launchctl)
    install_and_wait(old, daemons.ready)
    gives = [lambda path: path.chmod(0o666), mode_only]
    new = replace(launchd(tmp_path, launchctl, "/bin"), give=lambda path: gives.pop(0)(path))
    with pytest.raises(OperationError, match="5: Input/output error"):
        install_and_wait(new, daemons.ready)
    assert old.installed() == old.plist.data() and old.status().running


def test_where_no_home_is_named_its_own_is_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """sudo drops ELASTICD_HOME, and the service may have another home than the usual one."""
    folder, home = tmp_path / "LaunchDaemons", tmp_path / "elsewhere"
    folder.mkdir()
    real = LaunchdService.for_this_machine

    def of(home: Path, *, user: str, agent: bool = False) -> LaunchdService:
        return replace(real(home, user=user, agent=agent), folder=folder / str(int(agent)))

    monkeypatch.setattr(LaunchdService, "for_this_machine", of)
    (folder / "0").mkdir()
    there = installed(home, None, "darwin")
    assert isinstance(there, LaunchdService)
    there.path.write_bytes(there.plist.data())
    found = installed(None, None, "darwin")
    assert found.home == home and str(home / "daemon.log") in found.log_command()
    assert installed(tmp_path / "named", None, "darwin").home == tmp_path / "named"


def test_a_status_tells_programs_what_launchd_says(
    ctl: Ctl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = launchd(tmp_path, FakeLaunchctl())
    monkeypatch.setattr(commands, "installed", lambda home, user: found)
    none = {"installed": False, "running": False, "pid": None, "text": "not installed"}
    code, out, _ = ctl("service", "status", "--json")
    assert (code, json.loads(out)) == (0, none)
    found.install()
    text = "running, last exit code: (never exited)"
    told = {"installed": True, "running": True, "pid": 4100, "text": text}
    assert json.loads(ctl("service", "status", "--json")[1]) == told
    assert ctl("service", "status")[1] == f"{text} (process 4100)\n"


SYSTEMCTL = """#!/bin/sh
echo LoadState=loaded
echo ActiveState=active
echo SubState=running
echo MainPID=71
echo Result=success
"""


@pytest.mark.process
@pytest.mark.skipif(sys.platform == "darwin", reason="launchd's is asked there")
def test_a_status_tells_programs_what_systemd_says(
    ctl: Ctl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "systemctl"
    tool.write_text(SYSTEMCTL)
    tool.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    code, out, _ = ctl("service", "status", "--json")
    text = "active (running), last result: success"
    told = {"installed": True, "running": True, "pid": 71, "text": text}
    assert (code, json.loads(out)) == (0, told)


@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_the_logs_are_the_service_managers(platform: str, home: Path) -> None:
    found = service(home, None, platform)
    once, ever = found.log_command(), found.log_command(follow=True)
    assert set(once) < set(ever)
    assert any("elasticd" in word or str(home) in word for word in once)


@pytest.mark.process
def test_printed_lines_come_as_they_are_printed() -> None:
    script = "import sys; print('one', flush=True); sys.stdin.read(); print('two'); sys.exit(3)"
    lines = printed_lines([sys.executable, "-c", script])
    assert next(lines) == "one"
    assert next(lines) == "two"
    with pytest.raises(OperationError, match="status 3"):
        next(lines)


@pytest.mark.process
def test_a_reader_that_has_enough_ends_the_command() -> None:
    script = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
    lines = printed_lines([sys.executable, "-c", script])
    pid = int(next(lines))
    lines.close()  # type: ignore[attr-defined]
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_missing_service_manager_is_named() -> None:
    with pytest.raises(OperationError, match="no-such-tool: there is no such program"):
        next(printed_lines(["no-such-tool"]))


class Manager:
    """Of a service of that home; None: none is installed."""

    def __init__(self, home: Path, of: Path | None) -> None:
        self.home, self._of = home, of

    def installed_home(self) -> Path | None:
        return self._of

    def log_command(self, follow: bool = False) -> list[str]:
        return ["echo", "said to the service manager"]


@pytest.fixture
def not_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The home of a daemon that answers until it is asked to begin anew."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setattr(restarting, "BEGIN_SECONDS", 0.0)
    name_process(home / DAEMON_FILE, psutil.Process())
    statuses: list[dict[str, Any]] = [{"jobs": [], "nodes": []}]

    def status(_: dict[str, Any]) -> list[dict[str, Any]]:
        return [statuses.pop()] if statuses else []

    with FakeDaemon(home, {"restart": [], "status": status}):
        yield home


@pytest.mark.process
@pytest.mark.parametrize(
    ("own", "log", "shown"),
    [
        (True, "said into a file\n", "The end of its log:\n  said to the service manager"),
        (False, "said into a file\n", "The end of its log:\n  said into a file"),
        (False, None, "says why"),
    ],
)
@pytest.mark.parametrize("begin", [commands.begin_anew, cluster._begin_anew])
def test_of_a_daemon_that_does_not_come_back_the_end_of_its_log_is_shown(
    not_back: Path,
    monkeypatch: pytest.MonkeyPatch,
    own: bool,
    log: str | None,
    shown: str,
    begin: Callable[[Path], object],
) -> None:
    """That of its service, or what it prints into a file of its home: it may be no service's."""
    manager = Manager(not_back, not_back if own else None)
    monkeypatch.setattr(commands, "installed", lambda home, user: manager)
    if log is not None:
        (not_back / "daemon.log").write_text(log)
    with pytest.raises(OperationError, match="did not come back") as failed:
        begin(not_back)
    assert str(failed.value).endswith(shown)


@pytest.mark.process
def test_so_it_is_by_service_restart(ctl: Ctl, not_back: Path) -> None:
    (not_back / "daemon.log").write_text("said into a file\n")
    code, _, err = ctl("service", "restart", "--home", not_back)
    assert code == 1 and "The end of its log: said into a file" in " ".join(err.split())
