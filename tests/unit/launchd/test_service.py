from __future__ import annotations

import errno
import os
import plistlib
from dataclasses import replace
from pathlib import Path

import pytest

from elasticd.errors import OperationError, UsageError
from elasticd.launchd.launchctl import SystemLaunchctl
from elasticd.launchd.plist import LABEL, DaemonPlist
from elasticd.launchd.protected import doubts, kept_out
from elasticd.launchd.service import (
    HOMEBREW,
    Agent,
    LaunchdService,
    give_to_root,
    keep_own,
    present,
)
from elasticd.supervision.service import Result, invoking_user
from tests.nobody import NOBODY
from tests.unit.launchd.fake_launchctl import FakeLaunchctl


def mode_only(path: Path) -> None:
    path.chmod(0o644)


def taken(path: Path) -> Result:
    """plutil -lint, as macOS 14 has it."""
    try:
        plistlib.loads(path.read_bytes())
    except ValueError as error:
        return Result(1, f"{path}: {error}")
    return Result(0, f"{path}: OK")


@pytest.fixture
def launchctl() -> FakeLaunchctl:
    return FakeLaunchctl()


@pytest.fixture
def service(tmp_path: Path, launchctl: FakeLaunchctl) -> LaunchdService:
    folder = tmp_path / "LaunchDaemons"
    folder.mkdir()
    plist = DaemonPlist(tmp_path / "home", invoking_user(), tmp_path, "/usr/bin")
    return LaunchdService(plist, launchctl, folder, mode_only, lambda _: None, lint=taken)


def test_a_whole_life(service: LaunchdService, launchctl: FakeLaunchctl) -> None:
    assert service.status().text == "not installed"
    assert "enabled and started" in (said := service.install())
    assert said.endswith(f"Its home is {service.home}"), "sudo drops ELASTICD_HOME"
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
    assert service.restart() == "the service is restarted" and service.status().pid == 4102
    assert service.start() == "the service is started" and service.status().pid == 4102
    assert "removed" in service.uninstall()
    assert not service.path.exists() and launchctl.loaded is None
    assert "nothing to do" in service.uninstall()


@pytest.mark.parametrize("again", ["install", "start", "put back"])
def test_a_service_that_launchd_does_not_start_at_load_is_started(
    service: LaunchdService, launchctl: FakeLaunchctl, again: str
) -> None:
    launchctl.speculative = True
    service.install()
    assert service.status().running
    service.stop()
    if again == "put back":
        service.put_back(service.plist.data())
    elif again == "start":
        service.start()
    else:
        service.install()
    assert service.status().running


@pytest.mark.parametrize("says", [5, 37])
def test_a_start_waits_for_the_end_of_a_service_that_is_still_listed(
    service: LaunchdService, launchctl: FakeLaunchctl, says: int
) -> None:
    service.install()
    launchctl.unload_calls, launchctl.leaving_says, launchctl.afterwards = 12, says, 5
    launchctl.run("bootout", service.target)
    assert service.start() == "the service is started"
    assert service.status().running and not launchctl.leaving


@pytest.mark.parametrize("says", [5, 37])
def test_a_service_that_is_loaded_already_is_left_as_it_is(
    service: LaunchdService, launchctl: FakeLaunchctl, says: int
) -> None:
    service.install()
    launchctl.loaded_says = says
    pid = launchctl.pid
    assert service.start() == "the service is started" and launchctl.pid == pid


@pytest.mark.parametrize("calls", [0, 3, 10_000])
def test_a_restart_lets_the_daemon_end_and_kills_one_that_does_not(
    service: LaunchdService, launchctl: FakeLaunchctl, calls: int
) -> None:
    service.install()
    before, launchctl.stubborn = launchctl.pid, calls
    assert service.restart() == "the service is restarted"
    assert launchctl.pid not in (0, before) and launchctl.killed == (calls == 10_000)


@pytest.mark.parametrize("calls", [0, 10_000])
@pytest.mark.parametrize("says", [5, 37])
def test_a_restart_that_is_refused_for_a_moment_is_tried_again(
    service: LaunchdService, launchctl: FakeLaunchctl, says: int, calls: int
) -> None:
    """37 may be said while the process still runs that is to go."""
    service.install()
    launchctl.refuses_with = says
    before, launchctl.stubborn, launchctl.refuses = launchctl.pid, calls, 3
    assert service.restart() == "the service is restarted"
    assert launchctl.pid not in (0, before)
    before, launchctl.refuses = launchctl.pid, 10_000
    with pytest.raises(OperationError, match=rf"launchctl kickstart -k .*status {says}"):
        service.restart()
    launchctl.refuses, launchctl.refuses_with, launchctl.speculative = 3, 5, True
    service.stop()
    service.start()
    assert launchctl.pid not in (0, before)


def test_a_restart_starts_one_that_was_stopped(
    service: LaunchdService, launchctl: FakeLaunchctl
) -> None:
    service.install()
    service.stop()
    assert not launchctl.pid
    assert service.restart() == "the service is restarted"
    assert launchctl.pid and launchctl.loaded == service.path


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
    assert "nothing to do" in (said := service.install()) and str(service.home) in said
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


@pytest.mark.parametrize(
    "folder",
    [
        "Documents",
        "Desktop",
        "Downloads/deeper",
        "Library/Mobile Documents/x",
        "Library/CloudStorage/Dropbox/elasticd",
        "documents",
        "DESKTOP/deeper",
    ],
)
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


def test_a_folder_has_two_names(service: LaunchdService, tmp_path: Path) -> None:
    """As /System/Volumes/Data/Users is /Users, though without a link."""
    account, second = tmp_path / "ann", tmp_path / "data"
    second.mkdir()
    account.symlink_to(second)
    plist = replace(service.plist, user_home=account, home=second / "documents/home")
    for there in (False, True):
        if there:
            (second / "documents").mkdir()
        with pytest.raises(UsageError, match="lies in Documents"):
            replace(service, plist=plist).install(dry_run=True)
    beside = replace(plist, home=second / "Documents of mine")
    assert "would write" in replace(service, plist=beside).install(dry_run=True)


def test_a_disk_that_macos_may_keep_from_services_is_named() -> None:
    inside, outside = Path("/Volumes/Fast SSD/home"), Path("/opt/python")
    said = doubts([("the home", inside), ("the interpreter", outside)], "/x/Python.app")
    assert "the home /Volumes/Fast SSD/home: macOS may" in said and "/opt" not in said
    assert "Full Disk Access" in said and said.endswith("/x/Python.app")
    assert doubts([("the home", outside)], "/x/Python.app") == ""
    assert "Full Disk Access" in doubts([("the home", Path("/volumes/ssd"))], "/x/Python.app")


def test_what_macos_keeps_from_services_has_another_cure_than_plain_permissions() -> None:
    refused = OSError(errno.EPERM, "Operation not permitted")
    said = kept_out(refused, "darwin", lambda: "/x/Python.app")
    assert "macOS keeps services out" in said and "Full Disk Access: /x/Python.app" in said
    assert kept_out(refused, "linux") == ""
    for other in (OSError(errno.EACCES, "Permission denied"), ValueError("embedded null byte")):
        assert kept_out(other, "darwin") == ""


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
    launchctl.run("bootout", launchctl.target)
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
    with pytest.raises(OperationError, match="install the service first"):
        service.restart()


def test_without_root_nothing_is_left_behind(service: LaunchdService) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(1, "Operation not permitted")

    with pytest.raises(OperationError, match="needs root"):
        replace(service, give=refuse).install()
    assert list(service.folder.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_launchd_takes_a_daemons_file_of_root_alone(service: LaunchdService) -> None:
    """launchctl load, too, refuses one of another owner, or that others could write."""
    mask = os.umask(0)
    try:
        os.chown(service.folder, NOBODY, NOBODY)
        given = replace(service, give=give_to_root)
        given.install()
        os.chown(given.path, NOBODY, NOBODY)
        given.path.chmod(0o666)
        replace(given, plist=replace(given.plist, path="/bin")).install()
    finally:
        os.umask(mask)
    found = given.path.stat()
    assert (found.st_uid, found.st_gid, found.st_mode & 0o777) == (0, 0, 0o644)
    default = LaunchdService.for_this_machine(service.home, user=invoking_user())
    assert default.give is give_to_root


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


def test_what_a_second_parser_does_not_take_is_not_put_in_place(
    service: LaunchdService, launchctl: FakeLaunchctl
) -> None:
    refused = replace(service, lint=lambda path: Result(1, f"{path}: Unexpected character"))
    with pytest.raises(OperationError, match=r"partial for broken: .*Unexpected character"):
        refused.install()
    assert launchctl.calls == [] and list(service.folder.iterdir()) == []
    service.install()
    before = service.installed()
    with pytest.raises(OperationError, match="for broken"):
        replace(refused, plist=replace(service.plist, path="/bin")).install()
    assert service.installed() == before and service.status().running


# --- one person's use -----------------------------------------------------------------------------


def agent_of(tmp_path: Path, launchctl: FakeLaunchctl) -> LaunchdService:
    """Ann's; its folder isn't there yet."""
    launchctl.domain = "gui/501"
    plist = DaemonPlist(tmp_path / "home", None, tmp_path, "/usr/bin")
    return LaunchdService(
        plist,
        launchctl,
        tmp_path / "Library/LaunchAgents",
        keep_own,
        lambda _: None,
        Agent("ann", 501),
        taken,
    )


def test_a_whole_life_of_an_agent(tmp_path: Path, launchctl: FakeLaunchctl) -> None:
    agent = agent_of(tmp_path, launchctl)
    said = agent.install()
    assert "only while ann is logged in" in said and "in that list. That may not help" in said
    assert said.endswith(f"'sudo elasticctl service install --home {agent.home}'.")
    assert "UserName" not in plistlib.loads(agent.path.read_bytes())
    assert agent.path.stat().st_mode & 0o777 == 0o644
    assert agent.status().text.endswith("an agent: only while ann is logged in")
    launchctl.calls.clear()
    assert "nothing to do" in agent.install()
    assert {verb for verb, *_ in launchctl.calls} == {"print"}
    assert agent.restart() == "the service is restarted" and launchctl.pid == 4101
    assert agent.stop() == "the service is stopped"
    assert agent.start() == "the service is started" and agent.status().running
    other = replace(agent, plist=replace(agent.plist, path="/bin"))
    before = agent.installed()
    other.install()
    assert "of before is back" in other.put_back(before) and agent.installed() == before
    assert "removed" in agent.uninstall() and launchctl.loaded is None
    assert agent.status().text == "not installed"


@pytest.mark.parametrize("says", [125, 5])
def test_an_agent_of_somebody_who_is_not_logged_in(
    tmp_path: Path, launchctl: FakeLaunchctl, says: int
) -> None:
    agent = agent_of(tmp_path, launchctl)
    agent.install()
    launchctl.absent_says = says
    launchctl.log_out()
    status = agent.status()
    assert (status.installed, status.running, status.pid) == (True, False, None)
    assert status.text == "installed, not loaded: ann is not logged in at this Mac's screen"
    assert agent.stop() == "the service was not running"
    why = r"ann is not logged in .* \(ssh is not enough\).*'sudo .* service install --home /.*'"
    for verb in (agent.start, agent.restart):
        with pytest.raises(OperationError, match=why):
            verb()
    assert "removed" in agent.uninstall()
    assert agent.status().text == "not installed"
    with pytest.raises(OperationError, match=why):
        agent.install()
    assert "removed again" in agent.put_back(None) and agent.there() is None


def test_a_daemons_domain_is_always_there(
    service: LaunchdService, launchctl: FakeLaunchctl
) -> None:
    launchctl.log_out()
    with pytest.raises(OperationError, match="status 112"):
        service.status()


def test_a_mac_has_one_service(
    service: LaunchdService, launchctl: FakeLaunchctl, tmp_path: Path
) -> None:
    agent = agent_of(tmp_path, FakeLaunchctl())
    brewed = agent.path.with_name(HOMEBREW)
    agent = replace(agent, rivals=((service.path, "take the daemon away"), (brewed, "stop it")))
    daemon = replace(service, rivals=((agent.path, "take the agent away"), (brewed, "stop it")))
    assert daemon.there() is None and present(daemon, agent) is daemon

    daemon.install()
    assert present(daemon, agent) is daemon
    for dry_run in (True, False):
        with pytest.raises(UsageError, match=r"LaunchDaemons/.* one service.* take the daemon aw"):
            agent.install(dry_run)
    assert agent.installed() is None and agent.there() == daemon.path
    daemon.uninstall()

    agent.install()
    launchctl.calls.clear()
    assert present(daemon, agent) is agent and daemon.there() == agent.path
    for dry_run in (True, False):
        with pytest.raises(UsageError, match=r"LaunchAgents/.* one service.* take the agent away"):
            daemon.install(dry_run)
    assert daemon.installed() is None and launchctl.calls == []

    daemon.path.write_bytes(agent.path.read_bytes())
    with pytest.raises(UsageError, match=r"both there.*sudo elasticctl .* uninstall --agent'"):
        present(daemon, agent)
    daemon.path.unlink()
    agent.uninstall()
    brewed.touch()
    with pytest.raises(UsageError, match=r"homebrew\.mxcl\.elasticd\.plist is there.* stop it"):
        daemon.install()
    with pytest.raises(OperationError, match=r"is Homebrew's: 'brew services start elasticd'"):
        daemon.start()
    assert daemon.status().text.endswith("is Homebrew's: 'brew services info elasticd' tells of it")


def test_a_dry_run_of_an_agent_says_its_limits(tmp_path: Path, launchctl: FakeLaunchctl) -> None:
    agent = agent_of(tmp_path, launchctl)
    text = agent.install(dry_run=True)
    assert text.startswith(f"# would write {agent.path} (ann, 0644)\n")
    assert f"# would run: launchctl bootstrap gui/501 {agent.path}\n" in text
    assert "# It runs only while ann is logged in" in text
    assert launchctl.calls == [] and not agent.folder.exists()


@pytest.mark.parametrize("agent", [True, False])
def test_the_other_kinds_of_the_real_machine_are_rivals(tmp_path: Path, agent: bool) -> None:
    service = LaunchdService.for_this_machine(tmp_path, user=invoking_user(), agent=agent)
    other = LaunchdService.for_this_machine(tmp_path, user=invoking_user(), agent=not agent)
    rivals = dict(service.rivals)
    assert other.path in rivals and service.path not in rivals
    assert sorted(path.name for path in rivals) == [f"{LABEL}.plist", HOMEBREW, HOMEBREW]
    assert {path.parent for path in rivals} == {service.folder, other.folder}
    assert (service.agent is not None) == agent == (service.plist.user is None)
    assert ("sudo" in rivals[other.path]) == agent
    assert service.domain.startswith("gui/") == agent


def test_the_real_machine(tmp_path: Path) -> None:
    service = LaunchdService.for_this_machine(tmp_path / "home", user=invoking_user())
    assert service.path == Path("/Library/LaunchDaemons/com.elasticd.daemon.plist")
    assert isinstance(service.launchctl, SystemLaunchctl)
    assert "would write" in service.install(dry_run=True)
    with pytest.raises(UsageError, match="no user"):
        LaunchdService.for_this_machine(tmp_path, user="nobody-of-that-name")
