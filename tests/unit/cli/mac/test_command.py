"""The real ``elasticctl doctor --mac``, with the probes that are quick."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from elasticd.cli.mac.serving import CTL
from tests.unit.cli.test_bundle import packed

pytestmark = [pytest.mark.slow, pytest.mark.process]
QUICK = ("system", "sleep", "firewall", "plist", "assertions", "zombies", "exits", "descriptors")


def test_the_command_itself(tmp_path: Path) -> None:
    home, bundle = tmp_path / "home", tmp_path / "found.tar.gz"
    home.mkdir(0o700)
    only = [word for name in QUICK for word in ("--only", name)]
    done = run("--home", str(home), "--bundle", str(bundle), *only)
    told = json.loads(done.stdout)
    verdicts = {each["name"]: each["verdict"] for each in told["probes"]}
    assert tuple(verdicts) == QUICK
    slow = {name for name, verdict in verdicts.items() if verdict != "pass"}
    assert slow <= {"exits"}, told["probes"]
    assert done.returncode == (1 if told["wrong"] else 0)
    assert told["bundle"] == str(bundle) and list(home.iterdir()) == []
    found = packed(bundle)
    assert {"doctor.json", "versions.json", "home-0/files.txt"} <= set(found)
    assert json.loads(found["doctor.json"]) | {"bundle": str(bundle)} == told


def test_a_probe_that_fails_is_its_exit_code(tmp_path: Path) -> None:
    broken = tmp_path / "packages"
    (broken / "mlx").mkdir(parents=True)
    (broken / "mlx/core.py").write_text(
        "import sys\nprint('libmlx was looked for', file=sys.stderr)\n"
        "raise ImportError('no libmlx')\n"
    )
    bundle = tmp_path / "found.tar.gz"
    path = f"{broken}:{os.environ.get('PYTHONPATH', '')}"
    done = run("--home", str(tmp_path), "--bundle", str(bundle), "--only", "system", path=path)
    told = json.loads(done.stdout)
    assert done.returncode == 1, done.stderr
    (probe,) = told["probes"]
    assert (probe["verdict"], probe["value"]) == ("fail", "MLX can't be loaded: no libmlx")
    assert "pip install" in probe["cure"]
    assert packed(bundle)["probes/system.txt"] == b"libmlx was looked for\n"


def run(*words: str, path: str | None = None) -> subprocess.CompletedProcess[bytes]:
    own = {**os.environ, "PYTHONPATH": os.environ.get("PYTHONPATH", "") if path is None else path}
    return subprocess.run(
        [*CTL, "doctor", "--mac", "--json", *words], capture_output=True, check=False, env=own
    )
