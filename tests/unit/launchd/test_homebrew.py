"""The Homebrew formula says what pyproject.toml and our own property list say.

Ruby is not run here: the formula is read as text, line by line, and its service block is made into
the property list that Homebrew's ``Service#to_plist`` makes of one (Library/Homebrew/service.rb).
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from elasticd.launchd.plist import INCURABLE_ENDS_WELL, THROTTLE_SECONDS, DaemonPlist

ROOT = Path(__file__).parents[3]
FORMULA = (ROOT / "launchd/homebrew/elasticd.rb").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PREFIX = Path("/opt/homebrew")
ONLY_OURS = {"AbandonProcessGroup", "ExitTimeOut", "ThrottleInterval", "Umask"}
"""Keys that a service block has no words for; docs/macs.md says what that means."""


def block(opening: str, formula: str = FORMULA) -> list[str]:
    """The lines of one block of the class, without their indent."""
    found = re.search(rf"^  {opening}\n(.*?)^  end$", formula, re.MULTILINE | re.DOTALL)
    assert found, f"no block {opening!r}"
    return [line.strip() for line in found[1].splitlines() if line.strip()]


def value(text: str) -> Any:
    """What the words of a service block stand for: strings, paths, symbols and lists of them."""
    text = text.strip()
    paths = {"var": PREFIX / "var", "opt_libexec": PREFIX / "opt/elasticd/libexec"}
    if text.startswith("["):
        return [value(each) for each in text[1:-1].split(",")]
    if text in ("true", "false"):
        return text == "true"
    if text == "std_service_path_env":
        return f"{PREFIX}/bin:{PREFIX}/sbin:/usr/bin:/bin:/usr/sbin:/sbin"
    if text.startswith(":"):
        return text[1:].capitalize()
    root, _, rest = text.partition("/")
    return str(paths[root] / rest.strip('"')) if root in paths else text.strip('"')


def pairs(text: str) -> dict[str, Any]:
    """``A: 1, b: 2``."""
    found = re.findall(r"(\w+): (\".*?\"|\w+)", text)
    return {name: value(words) for name, words in found}


def brewed(formula: str = FORMULA) -> dict[str, Any]:
    """As Homebrew makes it of the service block."""
    said = dict(line.split(" ", 1) for line in block("service do", formula))
    keep = pairs(said.pop("keep_alive"))
    assert keep.keys() == {"successful_exit"}
    made = {
        "RunAtLoad": True,  # unless it says otherwise
        "ProgramArguments": value(said.pop("run")),
        "KeepAlive": {"SuccessfulExit": keep["successful_exit"]},
        "WorkingDirectory": value(said.pop("working_dir")),
        "StandardOutPath": value(said.pop("log_path")),
        "StandardErrorPath": value(said.pop("error_log_path")),
        "ProcessType": value(said.pop("process_type")),
        "EnvironmentVariables": pairs(said.pop("environment_variables")),
    }
    assert not said, "this test doesn't know what it makes of them"
    return made


def ours() -> dict[str, Any]:
    """Of the same home, as an agent."""
    made = brewed()
    path = made["EnvironmentVariables"]["PATH"]
    return DaemonPlist(PREFIX / "var/elasticd", None, Path("/Users/ann"), path).values()


def differences(made: dict[str, Any]) -> list[str]:
    """Keys of which Homebrew's list and ours say different things."""
    wanted = ours()
    environment = wanted["EnvironmentVariables"]
    del environment["HOME"]  # launchd gives it to an agent
    # What pip makes of bin/elasticd names one in the Cellar, which goes with its version.
    assert wanted["ProgramArguments"][0] == sys.executable
    wanted["ProgramArguments"][0] = str(PREFIX / "opt/elasticd/libexec/bin/python")
    keys = (wanted.keys() | made.keys()) - ONLY_OURS - {"Label"}
    return sorted(key for key in keys if wanted.get(key) != made.get(key))


def test_the_service_block_is_our_property_list() -> None:
    assert differences(brewed()) == []


@pytest.mark.parametrize(
    ("line", "instead", "key"),
    [
        ('"run", "--home"', '"run", "--dir"', "ProgramArguments"),
        ('opt_libexec/"bin/python"', 'opt_libexec/"bin/elasticd"', "ProgramArguments"),
        ("successful_exit: false", "successful_exit: true", "KeepAlive"),
        ('error_log_path var/"elasticd/daemon.log"', 'error_log_path var/"log/e.log"', "Standard"),
        ("process_type :interactive", "process_type :background", "ProcessType"),
        (f', {INCURABLE_ENDS_WELL}: "1"', "", "EnvironmentVariables"),
        ('working_dir var/"elasticd"', "working_dir var", "WorkingDirectory"),
    ],
)
def test_a_block_that_says_something_else_is_told(line: str, instead: str, key: str) -> None:
    assert line in FORMULA
    assert key in " ".join(differences(brewed(FORMULA.replace(line, instead))))


def test_what_the_block_cannot_say() -> None:
    assert ours().keys() >= ONLY_OURS
    assert THROTTLE_SECONDS == 10, "launchd's own default, so that the block needs no word for it"
    page = (ROOT / "docs/macs.md").read_text()
    assert all(key in page for key in ONLY_OURS - {"ThrottleInterval"})


def test_the_formula_is_of_this_version() -> None:
    archive = re.search(r'^  url ".*/elasticd-(.+)\.tar\.gz"$', FORMULA, re.MULTILINE)
    assert archive and archive[1] == PROJECT["version"]
    assert f'  license "{PROJECT["license"]}"\n' in FORMULA
    described = re.search(r'^  desc "(.+)"$', FORMULA, re.MULTILINE)
    assert described and PROJECT["description"].casefold() == f"a {described[1]}".casefold()
    assert len(described[1]) <= 80 and not described[1].endswith(".")


def on_a_mac() -> dict[str, Requirement]:
    """What elasticd needs there, by name."""
    found = [Requirement(each) for each in PROJECT["dependencies"]]
    mac = {"sys_platform": "darwin"}
    return {each.name: each for each in found if not each.marker or each.marker.evaluate(mac)}


def test_what_comes_from_homebrew_is_not_installed_again() -> None:
    """And all else has a resource as soon as there is one."""
    depends = set(re.findall(r'^  depends_on "([\w@.-]+)"', FORMULA, re.MULTILINE))
    excluded = re.search(r"exclude_packages: %w\[(.*?)\]", FORMULA)
    assert excluded
    brews = set(excluded[1].split())
    assert depends - {"rust", "python@3.14"} == brews
    assert brews <= on_a_mac().keys()
    extras = re.search(r'package_name: +"elasticd\[(.+?)\]"', FORMULA)
    assert extras and set(extras[1].split(",")) <= PROJECT["optional-dependencies"].keys()
    resources = set(re.findall(r'^  resource "([\w.-]+)" do', FORMULA, re.MULTILINE))
    if resources:
        assert on_a_mac().keys() - brews <= resources
    assert FORMULA.count('sha256 "') in (0, len(resources) + 1), "of some, but not of all"


def test_its_test_asks_for_the_mlx_that_we_ask_for() -> None:
    lines = "\n".join(block("test do"))
    asked = dict(re.findall(r':(>=|<), Version\.new\("([\d.]+)"\)', lines))
    assert asked == {each.operator: each.version for each in on_a_mac()["mlx"].specifier}


def test_its_python_is_one_that_we_take() -> None:
    found = re.search(r'depends_on "python@([\d.]+)"', FORMULA)
    assert found and Requirement(f"python{PROJECT['requires-python']}").specifier.contains(found[1])
