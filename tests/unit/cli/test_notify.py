"""``elasticctl notify``."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

from .test_commands import Ctl, Daemon


def test_which_nodes_tell_of_what(
    ctl: Ctl, home: Path, daemon: Daemon, status: dict[str, Any]
) -> None:
    told = copy.deepcopy(status)
    told["nodes"][0] |= {"notifies": ["job_failed", "parked"], "settings_refused": ""}
    told["nodes"][1]["settings_refused"] = "elasticd.toml:3: notify.parkd: unknown key"
    daemon(home, {"status": told})
    code, out, _ = ctl("notify", "--home", home)
    assert code == 0 and "job_failed, parked" in out and out.count("does not take") == 1
    assert out.splitlines()[-1].startswith("node-1 does not take") and "parkd" in out
    found = json.loads(ctl("notify", "--json", "--home", home)[1])["nodes"]
    assert found[0] == {
        "node": "node-0", "state": "alive", "notifies": ["job_failed", "parked"],
        "settings_refused": None,
    }  # fmt: skip
    assert found[1]["settings_refused"] == "elasticd.toml:3: notify.parkd: unknown key"


def test_a_test_shows_what_the_command_prints(
    ctl: Ctl, home: Path, daemon: Daemon, status: dict[str, Any]
) -> None:
    tried = [
        {"event": "job_failed", "error": None, "output": "sent\x1b[2J\n"},
        {"event": "parked", "error": "the webhook ended with status 1 (HTTP 404)", "output": ""},
    ]
    daemon(home, {"status": status, "try_notices": {"tried": tried}})
    code, out, _ = ctl("notify", "--test", "--home", home)
    assert code == 1 and "\x1b" not in out
    assert out.splitlines()[0] == "job_failed: told" and "  sent" in out.splitlines()[1]
    assert ctl("notify", "--test", "--json", "--home", home)[0] == 1
    daemon(home, {"status": status, "try_notices": {"tried": tried[:1]}})
    assert ctl("notify", "--test", "--event", "job_failed", "--home", home)[0] == 0


def test_an_event_without_a_test_is_refused(ctl: Ctl, home: Path) -> None:
    code, _, err = ctl("notify", "--event", "parked", "--home", home)
    assert code == 2 and "goes with --test" in err


def test_a_daemon_that_says_nothing_is_not_waited_for(ctl: Ctl, home: Path, daemon: Daemon) -> None:
    """What one that was stopped would do: it takes the request, and that is all."""
    daemon(home, {"status": [], "try_notices": {"tried": []}})
    assert ctl("notify", "--test", "--home", home)[0] == 3
