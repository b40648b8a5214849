"""elasticctl service: which service is meant. What it then does is tested beside its own code."""

from __future__ import annotations

import getpass
import json
import os
import plistlib
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from elasticd.cli.service import Service, printed_lines, require_same, service
from elasticd.errors import OperationError, UsageError

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
    assert json.loads(out)["dry_run"] is True


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


def test_an_unknown_user(ctl: Ctl) -> None:
    code, _, err = ctl("service", "install", "--dry-run", "--user", "no-such-user")
    assert (code, err) == (2, "elasticctl: there is no user 'no-such-user' on this machine\n")
    with pytest.raises(UsageError):
        service(Path("/x"), "no-such-user", "darwin")


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
