"""elasticctl service: which service is meant. What it then does is tested beside its own code."""

from __future__ import annotations

import getpass
import json
import os
import plistlib
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from elasticd.cli.service import service
from elasticd.errors import UsageError

Ctl = Callable[..., tuple[int, str, str]]


@pytest.mark.parametrize("verb", ["install", "uninstall", "start", "stop", "status"])
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
