"""Which home is meant, and what lies in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from elasticd.client.homes import home_behind_sudo, home_option, local_home, sockets, user_home
from elasticd.settings.localhomes import node_homes
from elasticd.settings.places import LOCAL_LOCK_NAME, default_home


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The platform's place, in a user's home that nobody has."""
    monkeypatch.delenv("ELASTICD_HOME", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    return default_home()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def test_only_folders_with_a_number_are_nodes(home: Path) -> None:
    for name in ("node-10", "node-2", "node-x", "node-01", "node-", "other"):
        (home / name).mkdir(parents=True)
    (home / "node-3").touch()
    assert [folder.name for folder in node_homes(home)] == ["node-2", "node-10"]


def test_a_home_that_is_given_is_meant(place: Path, home: Path) -> None:
    assert user_home(home) == local_home(home) == home


def test_the_variable_stands_for_a_home(
    place: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "local" / "node-0").mkdir(parents=True)
    monkeypatch.setenv("ELASTICD_HOME", str(home))
    assert user_home(None) == local_home(None) == home


def test_a_local_cluster_is_meant_where_no_daemon_lives_in_the_usual_place(place: Path) -> None:
    assert user_home(None) == place and local_home(None) == place / "local"
    (place / "local" / "node-0").mkdir(parents=True)
    assert user_home(None) == place / "local"
    (place / "control.sock").touch()
    assert user_home(None) == place


def test_sockets_are_those_of_the_home_then_of_its_nodes(home: Path) -> None:
    for name in ("node-10", "node-2", "node-1"):
        (home / name).mkdir(parents=True)
    for folder in (home / "node-10", home / "node-2", home):
        (folder / "control.sock").touch()
    found = [path.parent.relative_to(home).as_posix() for path in sockets(home)]
    assert found == [".", "node-2", "node-10"]


def test_behind_sudo_a_home_of_the_environment_is_named(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = ("--home", str(tmp_path))
    assert home_behind_sudo(place) == home_option(place) == ()
    assert home_behind_sudo(tmp_path) == home_option(tmp_path) == named
    monkeypatch.setenv("ELASTICD_HOME", str(tmp_path))
    assert home_option(tmp_path) == ()
    assert home_behind_sudo(tmp_path) == named


def test_a_command_names_a_home_that_is_not_meant_anyway(place: Path, tmp_path: Path) -> None:
    spaced = tmp_path / "a home"
    (spaced / "node-1").mkdir(parents=True)
    assert home_option(spaced / "node-1")[1].endswith("node-1"), "it is only called so"
    (spaced / LOCAL_LOCK_NAME).touch()
    assert home_option(spaced) == ("--home", str(spaced)) == home_option(spaced / "node-1")
    (place / "local" / "node-0").mkdir(parents=True)
    (place / "local" / LOCAL_LOCK_NAME).touch()
    assert home_option(place / "local") == () == home_option(place / "local" / "node-0")
