"""elasticctl doctor on a full disk, where no daemon runs that could remove files."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from elasticd.cli import health
from elasticd.cli.daemons import name
from elasticd.core.words.records import JobRecord
from elasticd.preflight.seen import NodeFacts
from elasticd.settings.diskroom import room_of
from elasticd.settings.places import DAEMON_FILE
from elasticd.shell.children.server import ROSTER_NAME
from elasticd.shell.control.ownfacts import OwnFacts
from elasticd.shell.storage.health import examine
from elasticd.shell.storage.records import StableRecords
from elasticd.supervision.roster import ChildEntry, ChildRoster
from elasticd.types import JobId
from tests.tinydisk import tiny_disk
from tests.unit.cli.test_health import Ctl, lived
from tests.unit.cli.test_machine import mac, well

MIB = 1 << 20
SIZES = {
    "checkpoints/a-1/x": 9, "cache/mlx/k": 3, "clones/a-1/0/x": 2, "work/a-1/x": 2,
    "work/b-2/x": 2, "logs/b-2/x": 4, "output/b-2/x": 1, "journal.lost": 2,
}  # fmt: skip


@pytest.fixture
def told(ctl: Ctl, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """``told(home)``: what the doctor finds of the disk of that home, which is full."""

    def of(home: Path) -> dict[str, Any]:
        machine = replace(mac(), facts=lambda own: replace(well(own), free_bytes=0))
        monkeypatch.setattr(health, "Machine", lambda: machine)
        code, out, _ = ctl("doctor", "--json", "--home", home)
        (found,) = [each for each in json.loads(out)["machine"] if each["check"] == "disk"]
        assert (code, found["verdict"]) == (1, "fail")
        return dict(found)

    return of


def full(home: Path) -> None:
    lived(home)
    records = StableRecords(home)
    job = {"job": {"name": "b"}}
    records.persist("job", JobRecord(JobId("b-2"), 2, job, "0" * 64, "finished"))
    records.close()
    for path, size in SIZES.items():
        (home / path).parent.mkdir(parents=True, exist_ok=True)
        (home / path).write_bytes(b"x" * size * MIB)


def removed(cure: str) -> list[Path]:
    """What the commands in a cure remove."""
    commands = [shlex.split(each) for each in cure.split("'") if each.startswith("rm -r ")]
    return [Path(path) for command in commands for path in command[2:]]


def test_what_takes_the_room_and_may_go_is_said_where_no_daemon_runs(
    told: Callable[[Path], dict[str, Any]], home: Path
) -> None:
    full(home)
    found = told(home)
    assert f"0.0 GiB free; of the home {home}/checkpoints has 9.0 MiB, " in found["value"]
    again, unneeded = (home / "cache", home / "clones"), {"logs/b-2", "work/b-2", "journal.lost"}
    assert {*removed(found["cure"])} == {*again, *(home / path for path in unneeded)}
    assert " frees 5.0 MiB, and it is made again; if nobody needs them, " in found["cure"]
    assert "Never remove checkpoints or the journal" in found["cure"]
    assert "elasticctl disk" not in found["cure"], "that needs a daemon"
    start = f"Start the daemon: 'elasticctl service start --home {home}'; then"
    assert start in found["cure"]
    for path in removed(found["cure"]):
        subprocess.run(["rm", "-r", path], check=True)
    found = told(home)
    assert removed(found["cure"]) == [] and "outside of its home" in found["cure"]
    assert f"of the jobs: 'elasticctl reset --checkpoints --home {home}'. Never" in found["cure"]


def test_little_is_enough_for_a_daemon_to_start(
    told: Callable[[Path], dict[str, Any]], home: Path
) -> None:
    """Which then removes what it is told to; on a disk of its own there is nothing else."""
    lived(home)
    (home / "clones" / "a-1").mkdir(parents=True)
    (home / "clones" / "a-1" / "x").write_bytes(b"x" * (MIB // 4))
    cure = told(home)["cure"]
    assert removed(cure) == [home / "clones"] and "outside of its home" not in cure


def test_what_a_reset_put_aside_is_named_only_if_no_job_could_be_had_from_it(
    told: Callable[[Path], dict[str, Any]], ctl: Ctl, home: Path
) -> None:
    lived(home)
    (home / "journal.lost").write_bytes(b"x" * 2 * MIB)
    cure = told(home)["cure"]
    assert removed(cure) == [home / "journal.lost"] and "By hand: if nobody needs them, " in cure
    assert ctl("reset", "--yes", "--home", str(home))[0] == 0
    assert removed(told(home)["cure"]) == []


def test_what_lies_on_another_disk_frees_nothing_here(
    told: Callable[[Path], dict[str, Any]], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full(home)
    on_other = Path("/dev/shm") / f"elasticd-{os.getpid()}-logs"
    if not on_other.parent.is_dir() or on_other.parent.stat().st_dev == home.stat().st_dev:
        pytest.skip("there is no other file system")
    try:
        (home / "logs").rename(home / "logs-before")
        (on_other / "b-2").mkdir(parents=True)
        (on_other / "b-2" / "x").write_bytes(b"x" * 4 * MIB)
        (home / "logs").symlink_to(on_other)
        assert home / "logs" / "b-2" not in removed(told(home)["cure"])
    finally:
        shutil.rmtree(on_other, ignore_errors=True)


def test_the_commands_are_named_where_a_daemon_runs(
    told: Callable[[Path], dict[str, Any]], home: Path
) -> None:
    full(home)
    name(home / DAEMON_FILE, psutil.Process(os.getpid()))
    found = told(home)
    assert removed(found["cure"]) == [] and "elasticctl disk" in found["cure"]


def test_processes_that_are_left_are_to_end_first(
    told: Callable[[Path], dict[str, Any]], home: Path
) -> None:
    full(home)
    with subprocess.Popen(["sleep", "60"]) as child:
        born = psutil.Process(child.pid).create_time()
        ChildRoster(home / ROSTER_NAME).add(ChildEntry(child.pid, born, "trainer"))
        found = told(home)
        child.kill()
    assert f"End the processes first that are named at {home / ROSTER_NAME}. By" in found["cure"]
    assert "End the processes" not in told(home)["cure"]


@pytest.mark.process
def test_where_there_is_no_room_for_more_files_no_large_folder_is_to_go(
    ctl: Ctl, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def seen(own: OwnFacts) -> NodeFacts:
        return replace(well(own), free_files=room_of(own.home).free_files)

    monkeypatch.setattr(health, "Machine", lambda: replace(mac(), facts=seen))
    home.mkdir(parents=True)
    with tiny_disk(home, "64m", 100):
        full(home)
        code, out, _ = ctl("doctor", "--json", "--home", home)
        (found,) = [each for each in json.loads(out)["machine"] if each["check"] == "disk"]
        assert code == 1 and "no more files, or few (" in found["value"]
        assert removed(found["cure"]) == [] and "small files on the disk of" in found["cure"]
        with pytest.raises(OSError, match="No space left"):
            for number in range(100):
                (home / "logs" / str(number)).touch()
        finding = examine(home, running=False, start="START")[0]
        assert finding.cause == "can't be written: No space left on device"
        assert finding.cure.startswith("Remove many small files from that disk; then start")
