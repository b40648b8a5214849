"""Homes of local clusters, found by their names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from elasticd.client.client import Client
from elasticd.client.homes import sockets
from elasticd.core.words.requests.looking import ShowStatus
from elasticd.errors import NoDaemonError
from elasticd.settings.localhomes import node_homes
from tests.nobody import as_nobody


@pytest.fixture(params=["folder above", "home"])
def closed(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A home that we may not enter. (Root may enter all.)"""
    home = tmp_path / "closed" / "home"
    (home / "node-0").mkdir(parents=True)
    shut = home if request.param == "home" else home.parent
    shut.chmod(0)
    with as_nobody():
        yield home
    shut.chmod(0o700)


def test_nodes_are_sorted_by_number(tmp_path: Path) -> None:
    assert node_homes(tmp_path / "none") == []
    for name in ("node-10", "node-2", "node-02", "node-x", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "node-3").touch()
    assert [home.name for home in node_homes(tmp_path)] == ["node-2", "node-10"]


def test_a_home_that_we_may_not_look_into_is_a_daemon_that_cannot_be_asked(closed: Path) -> None:
    with pytest.raises(PermissionError):
        node_homes(closed)
    assert sockets(closed) == [closed / "control.sock"]
    with pytest.raises(NoDaemonError, match="permission denied"):
        Client(closed).request(ShowStatus())
