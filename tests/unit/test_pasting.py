"""Commands in messages can be pasted, whatever the home is called."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from elasticd.client.connection import NobodyListens
from elasticd.pasting import of_home, quoted
from elasticd.shell.storage.records import way_back

HOMES = [Path(name) for name in ("/tmp/home", "/tmp/my home", "/tmp/m's home", '/tmp/m"y"', "/$x")]


def commands(message: str) -> list[str]:
    """What a reader takes for the commands: what stands in quotes, where none stands in those, else
    all up to the next words."""
    bare = re.findall(
        r"(?<!')elasticctl [a-z ]+ --home .*?(?=,| or elasticctl| or name|$)", message
    )
    return bare or re.findall(r"'(elasticctl [^']*)'", message)


@pytest.mark.parametrize("home", HOMES)
@pytest.mark.parametrize(
    ("message", "wanted"),
    [
        (lambda home: str(NobodyListens(home)), ["local up", "service install"]),
        (way_back, ["reset"]),
        (
            lambda home: f"Start it again: {quoted(of_home('service start', home))}",
            ["service start"],
        ),
    ],
)
def test_a_command_is_pasted_as_it_stands(
    message: Callable[[Path], str], wanted: list[str], home: Path
) -> None:
    text = message(home)
    found = [shlex.split(command) for command in commands(text) if "--home" in command]
    assert found == [["elasticctl", *what.split(), "--home", str(home)] for what in wanted], text


def test_quotes_stand_in_no_others() -> None:
    assert quoted("elasticctl status") == "'elasticctl status'"
    assert quoted(of_home("local up", Path("/a b"))) == "elasticctl local up --home '/a b'"
