"""``elasticctl dashboard``: the address, with the token."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from elasticd.shell.control.webtoken import (
    PLACE_FILE,
    TOKEN_FILE,
    WebPlace,
    make_token,
    tell_place,
    token_of,
)
from elasticd.shell.storage import papers
from tests.members import member

from .test_commands import Ctl, Daemon


def test_the_address_lets_one_in(
    ctl: Ctl, home: Path, daemon: Daemon, status: dict[str, Any]
) -> None:
    daemon(home, {"status": status})
    tell_place(home, WebPlace("127.0.0.1", 8050))
    make_token(home)
    url = f"http://127.0.0.1:8050/#token={token_of(home)}"
    assert ctl("dashboard", "--home", home) == (0, f"{url}\n", "")
    code, out, _ = ctl("dashboard", "--json", "--home", home)
    assert (code, json.loads(out)) == (0, {"url": url, "fingerprint": None})


def test_of_a_local_cluster_that_of_a_node_that_runs(
    ctl: Ctl, home: Path, daemon: Daemon, status: dict[str, Any]
) -> None:
    for name in ("node-0", "node-1"):
        (home / name).mkdir(parents=True)
        (home / name / "elasticd.toml").write_text("")
    daemon(home / "node-1", {"status": status})
    tell_place(home / "node-1", WebPlace("127.0.0.1", 8051))
    make_token(home / "node-1")
    assert ctl("dashboard", "--home", home)[1].startswith("http://127.0.0.1:8051/#token=")


def test_another_token(ctl: Ctl, home: Path, daemon: Daemon, status: dict[str, Any]) -> None:
    daemon(home, {"status": status})
    tell_place(home, WebPlace("127.0.0.1", 8050))
    make_token(home)
    before = token_of(home)
    code, out, _ = ctl("dashboard", "--new-token", "--home", home)
    assert code == 0 and before not in out and token_of(home) in out


def test_with_tls_the_certificate_can_be_compared(
    ctl: Ctl, home: Path, daemon: Daemon, status: dict[str, Any]
) -> None:
    daemon(home, {"status": status})
    papers.write(home, member("node-0"))
    tell_place(home, WebPlace("10.0.0.1", 8050, True))
    make_token(home)
    code, out, _ = ctl("dashboard", "--home", home)
    url, fingerprint = out.splitlines()
    assert code == 0 and url.startswith("https://10.0.0.1:8050/#token=")
    assert len(fingerprint.split()[-1]) == 32 * 3 - 1


def test_there_is_none(ctl: Ctl, home: Path, daemon: Daemon, status: dict[str, Any]) -> None:
    assert ctl("dashboard", "--home", home)[0] == 3
    daemon(home, {"status": status})
    for place, why in (
        (WebPlace(why="x is not installed there"), "x is not installed there"),
        (None, "a version that serves none"),
    ):
        (home / PLACE_FILE).unlink(missing_ok=True)
        if place is not None:
            tell_place(home, place)
        code, out, err = ctl("dashboard", "--home", home)
        assert (code, out) == (1, "") and why in err and len(err.splitlines()) == 1
    tell_place(home, WebPlace("127.0.0.1", 8050))
    assert ctl("dashboard", "--home", home)[0] == 1 and not (home / TOKEN_FILE).exists()


@pytest.mark.parametrize(
    "text", ["", "short", "a" * 20 + "\n" + "b" * 20, "x" * 30 + " y", "é" * 40]
)
def test_what_is_no_token_makes_no_address(
    ctl: Ctl, home: Path, daemon: Daemon, status: dict[str, Any], text: str
) -> None:
    daemon(home, {"status": status})
    tell_place(home, WebPlace("127.0.0.1", 8050))
    (home / TOKEN_FILE).write_text(text)
    (home / TOKEN_FILE).chmod(0o600)
    code, out, err = ctl("dashboard", "--home", home)
    assert (code, out) == (1, "") and len(err.splitlines()) == 1
    assert "holds no token" in err and "--new-token" in err
    code, out, _ = ctl("dashboard", "--new-token", "--home", home)
    assert code == 0 and len(token_of(home)) == 43 and token_of(home) in out
