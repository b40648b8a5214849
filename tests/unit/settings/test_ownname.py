"""What a machine is called, and the node of a home, on Linux and with a Mac's tool."""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from elasticd.settings import config
from elasticd.settings.ownname import (
    LOCAL_HOST_NAME,
    default_node_id,
    machine_names,
    name_in_cluster,
)
from elasticd.settings.places import FILE_NAME, MEMBER, OLD_PAPERS, PAPERS
from elasticd.shell.storage import founding, papers, starting
from elasticd.systemtools import Ask, printed
from elasticd.types import NodeId
from tests.members import member

NOW = socket.gethostname().partition(".")[0]


def scutil(answer: str, asked: list[Sequence[str]]) -> Ask:
    def ask(command: Sequence[str]) -> str:
        asked.append(command)
        return answer

    return ask


def test_a_mac_is_called_as_its_owner_calls_it() -> None:
    asked: list[Sequence[str]] = []
    assert default_node_id("darwin", scutil("mac-1", asked)) == "mac-1"
    assert asked == [LOCAL_HOST_NAME]
    assert default_node_id("linux", scutil("mac-1", asked)) == default_node_id("linux")
    assert len(asked) == 1  # Linux has no such tool


def test_a_mac_that_does_not_say_it_is_called_as_now() -> None:
    assert default_node_id("darwin", lambda command: "") == default_node_id("linux")


def test_people_may_know_a_mac_by_both_names() -> None:
    names = machine_names("darwin", lambda command: "mac-1")
    assert {"mac-1", "mac-1.local", NOW, socket.gethostname()} <= names


def test_a_tool_that_fails_or_is_not_there_says_nothing() -> None:
    assert printed(["/bin/echo", "mac-1"]) == "mac-1"
    assert printed(["/nonexistent/scutil"]) == ""
    assert printed(["/bin/sh", "-c", "echo mac-1; exit 1"]) == ""


def test_a_member_keeps_its_name_whatever_the_machine_is_called(tmp_path: Path) -> None:
    """Its daemon was started alone under the name that the machine had on another network."""
    founding.found(tmp_path, NodeId("as-it-was"))
    settings = config.load(tmp_path)
    assert settings.node_id == "as-it-was"
    assert not list(starting.hindrances(tmp_path))
    (tmp_path / FILE_NAME).write_text('listen = "0.0.0.0:7070"\n')
    assert config.load(tmp_path).node_id == "as-it-was"
    elsewhere = tmp_path / "other.toml"
    elsewhere.write_text("peers = []\n")
    assert config.load(tmp_path, elsewhere).node_id == "as-it-was"


def test_one_that_others_know_is_not_started_with_settings_that_were_emptied(
    tmp_path: Path,
) -> None:
    papers.write(tmp_path, replace(member("as-it-was"), peers=("10.0.0.2:7070",)))
    (found,) = starting.hindrances(tmp_path)
    assert "as if it was emptied" in found.cause and "--listen HOST:PORT" in found.cure
    (tmp_path / FILE_NAME).write_text('listen = "10.0.0.1:7070"\n')
    assert not list(starting.hindrances(tmp_path))


def test_what_elasticd_toml_says_holds(tmp_path: Path) -> None:
    """So that a home which is another node's is refused, as ever."""
    founding.found(tmp_path, NodeId("a"))
    (tmp_path / FILE_NAME).write_text('node_id = "b"\n')
    assert config.load(tmp_path).node_id == "b"
    assert [each.cause for each in starting.hindrances(tmp_path)]


def test_the_name_is_there_while_papers_are_replaced(tmp_path: Path) -> None:
    founding.found(tmp_path, NodeId("a"))
    (tmp_path / PAPERS).rename(tmp_path / OLD_PAPERS)
    assert name_in_cluster(tmp_path) == "a"


@pytest.mark.parametrize("said", ["", "[]", "{}", '{"node": 7}', json.dumps({"node": "../x"})])
def test_papers_that_name_nobody(tmp_path: Path, said: str) -> None:
    """That they are damaged is said where they are read whole."""
    assert name_in_cluster(tmp_path) is None
    (tmp_path / PAPERS).mkdir()
    (tmp_path / PAPERS / MEMBER).write_text(said)
    assert name_in_cluster(tmp_path) is None
    assert config.load(tmp_path).node_id == default_node_id()
