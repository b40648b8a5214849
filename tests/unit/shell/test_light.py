"""What a daemon does not load: it runs on every node for years, beside what trains. Nor do commands
load what only a few of them need: they should start quickly."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from elasticd.settings.places import FILE_NAME
from elasticd.shell.storage import papers
from tests.members import member

# All that a daemon does with what makes it a member, until somebody joins or a person asks.
MEMBER = """
import asyncio, pathlib
import elasticd.shell.daemon
from elasticd.settings import config
from elasticd.shell.assembly import identity
from elasticd.shell.assembly.expulsion import Expulsion
from elasticd.shell.control.admission import Admission
from elasticd.shell.storage import issuing
home = pathlib.Path(sys.argv[1])
shown = identity.as_member(home, config.load(home))
admission = Admission(home, shown, "c", "available", dict)
assert admission._issuer() is None and issuing.read(home) == {}
ignore = lambda *_: None
out = Expulsion(home, shown, ignore, ignore, ignore, ignore, list, lambda node: 0)
asyncio.run(out.put_out("b"))
"""


def loads(heavy: str, code: str, *arguments: str) -> bool:
    script = f"import sys; {code}\nsys.exit(3 if {heavy!r} in sys.modules else 4)"
    command = [sys.executable, "-c", script, *arguments]
    code_of_it = subprocess.run(command, timeout=60, check=False).returncode
    assert code_of_it in (3, 4)
    return code_of_it == 3


@pytest.mark.process
@pytest.mark.parametrize("heavy", ["mlx", "numpy", "rich", "typer", "cryptography"])
def test_a_daemon_does_without(heavy: str) -> None:
    assert not loads(heavy, "import elasticd.shell.daemon")


@pytest.mark.process
def test_a_member_does_without_cryptography_and_who_founds_does_not(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text('node_id = "a"\n')
    papers.write(tmp_path, member("a"))
    assert not loads("cryptography", MEMBER, str(tmp_path))
    papers.forget(tmp_path)
    founds = MEMBER.replace("admission._issuer() is None", "admission._issuer()")
    assert loads("cryptography", founds, str(tmp_path))


@pytest.mark.process
@pytest.mark.parametrize("heavy", ["mlx", "cryptography"])
def test_the_command_line_does_without(heavy: str) -> None:
    modules = "commands, jobs, localgroup, health, cluster, checkpoints, configure, service"
    assert not loads(heavy, f"import elasticd.cli.entry; from elasticd.cli import {modules}")


@pytest.mark.process
@pytest.mark.parametrize(
    "heavy", ["elasticd.shell", "elasticd.core.words.worlds", "asyncio", "psutil"]
)
def test_a_command_does_without_what_others_need(heavy: str) -> None:
    code = "from elasticd.cli.entry import run; assert run(['status', '--home', '/nowhere']) == 3"
    assert not loads(heavy, code)
