from __future__ import annotations

import plistlib
import sys
from dataclasses import replace
from pathlib import Path

from elasticd.launchd.plist import LABEL, DaemonPlist, lasting

PLIST = DaemonPlist(
    home=Path("/Users/ann/Library/Application Support/elasticd & <more>"),
    user="ann",
    user_home=Path("/Users/ann"),
    path="/usr/bin:/bin",
)


def test_every_key_that_the_facts_ask_for() -> None:
    found = plistlib.loads(PLIST.data())
    home = str(PLIST.home)
    assert found == {
        "Label": "com.elasticd.daemon",
        "UserName": "ann",
        "ProgramArguments": [
            *(sys.executable, "-P", "-m", "elasticd.shell.daemon", "run"),
            *("--home", home),
        ],
        "WorkingDirectory": home,
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "ThrottleInterval": 10,
        "ExitTimeOut": 90,
        "AbandonProcessGroup": True,
        "Umask": 63,
        "ProcessType": "Interactive",
        "EnvironmentVariables": {
            "HOME": "/Users/ann",
            "LANG": "en_US.UTF-8",
            "PATH": "/usr/bin:/bin",
            "ELASTICD_INCURABLE_ENDS_WELL": "1",
        },
        "StandardOutPath": f"{home}/daemon.log",
        "StandardErrorPath": f"{home}/daemon.log",
    }
    assert Path(found["ProgramArguments"][0]).is_absolute()
    assert found["Label"] == LABEL


def test_an_agent_says_the_same_but_for_the_account() -> None:
    agent, daemon = replace(PLIST, user=None).values(), PLIST.values()
    assert daemon.pop("UserName") == "ann"
    assert agent == daemon


def test_an_interpreter_of_homebrews_is_named_as_the_next_version_will_be(tmp_path: Path) -> None:
    cellar = tmp_path / "Cellar/elasticd/0.1.0"
    python = cellar / "libexec/bin/python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    assert lasting(str(python)) == str(python), "there is no such link"
    (tmp_path / "opt").mkdir()
    (tmp_path / "opt/elasticd").symlink_to(cellar)
    assert lasting(str(python)) == str(tmp_path / "opt/elasticd/libexec/bin/python")
    assert lasting(sys.executable) == sys.executable
    (tmp_path / "opt/elasticd").unlink()
    other = tmp_path / "opt/elasticd/libexec/bin/python"
    other.parent.mkdir(parents=True)
    other.write_bytes(b"of another version")
    assert lasting(str(python)) == str(python)


def test_no_limit_of_the_whole_system_is_touched() -> None:
    assert b"NumberOfFiles" not in PLIST.data() and b"ResourceLimits" not in PLIST.data()


def test_equal_settings_give_equal_bytes() -> None:
    assert PLIST.data() == PLIST.data()
    assert PLIST.data().startswith(b"<?xml")
