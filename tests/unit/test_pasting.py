"""Commands in messages can be pasted, whatever the home is called."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from elasticd.cli.clusterhome import restarting
from elasticd.client.connection import NobodyListens
from elasticd.errors import ConfigError
from elasticd.pasting import of_home, pasted, quoted
from elasticd.settings import job
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
        (restarting, ["service restart"]),
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


@pytest.mark.parametrize("path", HOMES)
def test_each_word_behind_a_command_is_one(path: Path) -> None:
    wanted = ["sudo", "rm", "-r", str(path), "--now"]
    assert shlex.split(pasted("sudo rm -r", path, "--now")) == wanted
    text = quoted("sudo rm -r", path, "--now")
    assert shlex.split(text if text.startswith("sudo") else text.strip("'")) == wanted


def test_a_job_file_to_submit_is_named_as_a_shell_takes_it(tmp_path: Path) -> None:
    """In a Mac's ``Application Support``, say, or wherever somebody keeps their scripts."""
    script = tmp_path / "my jobs/train.ipynb"
    script.parent.mkdir()
    script.write_text("{}")
    with pytest.raises(ConfigError) as caught:
        job.load(script)
    said = str(caught.value)
    assert f"elasticctl submit '{script.with_name('job.toml')}' (" in said
    assert f"jupyter nbconvert --to script '{script}')" in said


def test_quotes_stand_in_no_others() -> None:
    assert quoted("elasticctl status") == "'elasticctl status'"
    assert quoted(of_home("local up", Path("/a b"))) == "elasticctl local up --home '/a b'"
