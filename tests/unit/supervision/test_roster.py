from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import psutil
import pytest

from elasticd.supervision.birth import birth
from elasticd.supervision.exits import wait_without_reaping
from elasticd.supervision.process import AdoptedProcess
from elasticd.supervision.roster import ChildEntry, ChildRoster, end_session, kill_group
from tests.noroom import no_room

pytestmark = pytest.mark.process


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True
    )
    yield process
    process.kill()
    process.wait(10)


def entry_of(pid: int) -> ChildEntry:
    return ChildEntry(pid, psutil.Process(pid).create_time(), "trainer")


def test_a_leftover_is_killed(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    entry = entry_of(sleeper.pid)
    ChildRoster(tmp_path / "children.json").add(entry)
    assert ChildRoster(tmp_path / "children.json").end_leftovers() == [entry]
    sleeper.wait(10)  # far sooner than it would end; psutil may have reaped it and its status
    assert json.loads((tmp_path / "children.json").read_text()) == []


def test_a_full_disk_has_room_for_a_list_of_nothing(
    tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    """Else nothing could be removed there, as a reset does, before something else was."""
    entry = entry_of(sleeper.pid)
    ChildRoster(tmp_path / "children.json").add(entry)
    with no_room():
        assert ChildRoster(tmp_path / "children.json").end_leftovers() == [entry]
        assert [*tmp_path.iterdir()] == [] == ChildRoster(tmp_path / "children.json").take_over()
        with pytest.raises(OSError, match=r"children\.json\.partial"):
            ChildRoster(tmp_path / "children.json").add(entry)
    assert [*tmp_path.iterdir()] == []
    sleeper.wait(10)


def test_another_process_with_the_same_pid_is_left_alone(
    tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    entry = entry_of(sleeper.pid)
    ChildRoster(tmp_path / "children.json").add(
        ChildEntry(entry.pid, entry.create_time - 60, "trainer")
    )
    assert ChildRoster(tmp_path / "children.json").end_leftovers() == []
    assert sleeper.poll() is None


@pytest.mark.parametrize("seconds", [-86400.0, -3.0, 3.0, 86400.0])
def test_a_process_is_known_again_after_the_clock_was_set(
    tmp_path: Path, sleeper: subprocess.Popen[bytes], seconds: float
) -> None:
    """Linux tells all start times by the wall clock of now."""
    now = entry_of(sleeper.pid)
    before = replace(now, create_time=now.create_time - seconds, born=birth(sleeper.pid), nonce="n")
    ChildRoster(tmp_path / "children.json").add(before)
    assert ChildRoster(tmp_path / "children.json").take_over() == [before]
    AdoptedProcess(before).signal(signal.SIGTERM)
    sleeper.wait(10)


def test_another_process_is_told_apart_though_its_time_is_the_same(
    tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    other = replace(entry_of(sleeper.pid), born=f"{birth(sleeper.pid)}0")
    ChildRoster(tmp_path / "children.json").add(other)
    assert ChildRoster(tmp_path / "children.json").end_leftovers() == []
    AdoptedProcess(other).signal(signal.SIGKILL)
    end_session(other)
    assert sleeper.poll() is None


def test_a_process_that_leads_no_group_is_killed_alone(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    entry = entry_of(process.pid)
    ChildRoster(tmp_path / "children.json").add(entry)
    assert ChildRoster(tmp_path / "children.json").end_leftovers() == [entry]
    process.wait(10)


@pytest.mark.parametrize("system", ["linux", "darwin"])
def test_what_a_crashed_leader_has_started_is_killed_too(
    system: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loader's worker outlives its trainer's crash, while the trainer waits to be reaped."""
    started = "import subprocess, sys; print(subprocess.Popen(['sleep', '60']).pid, flush=True)"
    leader = subprocess.Popen(
        [sys.executable, "-c", started], start_new_session=True, stdout=subprocess.PIPE
    )
    assert leader.stdout is not None
    worker = psutil.Process(int(leader.stdout.readline()))
    wait_without_reaping(leader.pid)
    if system == "darwin":
        # XNU's proc_find, by which getpgid(2) looks, finds no zombies: it says ESRCH.
        def getpgid(pid: int) -> int:
            raise ProcessLookupError(3, "No such process")

        monkeypatch.setattr(os, "getpgid", getpgid)
    kill_group(leader.pid)
    psutil.wait_procs([worker], timeout=10)
    assert has_ended_or_gone(worker)
    with leader.stdout:
        leader.wait(10)


def has_ended_or_gone(process: psutil.Process) -> bool:
    """Whether nobody has it any more, be it that its new parent doesn't reap."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_a_process_of_a_role_that_another_version_has_is_ended(
    tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    """Nobody here can talk to it."""
    told = {**asdict(entry_of(sleeper.pid)), "nonce": "ab"}
    (tmp_path / "children.json").write_text(json.dumps([told]))
    assert [one.nonce for one in ChildRoster(tmp_path / "children.json").take_over()] == ["ab"]
    (tmp_path / "children.json").write_text(json.dumps([{**told, "role": "cook"}]))
    assert ChildRoster(tmp_path / "children.json").take_over() == []
    sleeper.wait(10)


def test_removed_entries_are_forgotten(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    roster = ChildRoster(tmp_path / "children.json")
    entry = entry_of(sleeper.pid)
    roster.add(entry)
    roster.remove(entry)
    roster.remove(entry)
    assert ChildRoster(tmp_path / "children.json").end_leftovers() == []
    assert sleeper.poll() is None


def test_who_has_the_pid_of_one_that_ended_stays(
    tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    """What has ended is struck behind starts that wait for the disk."""
    roster = ChildRoster(tmp_path / "children.json")
    before, now = (replace(entry_of(sleeper.pid), nonce=nonce) for nonce in ("a", "b"))
    for entry in (before, now):
        roster.add(entry)
    roster.remove(before)
    assert ChildRoster(tmp_path / "children.json").living() == [now]
    roster.remove(now)
    assert ChildRoster(tmp_path / "children.json").living() == []


@pytest.mark.parametrize(
    "content", ["", "nonsense", "{}", "[1]", '[{"pid": "x"}]', '[{"pid": 1, "create_time": 0}]']
)
def test_garbage_kills_nobody(tmp_path: Path, content: str) -> None:
    (tmp_path / "children.json").write_text(content)
    assert ChildRoster(tmp_path / "children.json").end_leftovers() == []


@pytest.mark.parametrize("pid", [-1, 0, 1, 1 << 30])
def test_pids_that_no_child_has_are_left_alone(tmp_path: Path, pid: int) -> None:
    ChildRoster(tmp_path / "children.json").add(ChildEntry(pid, 0.0, "trainer"))
    assert ChildRoster(tmp_path / "children.json").end_leftovers() == []


def test_a_copied_list_names_no_process(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    """They are of the home that was copied, and do its work. One that is moved keeps its own."""
    home, copy = tmp_path / "home", tmp_path / "copy"
    home.mkdir()
    entry = replace(entry_of(sleeper.pid), nonce="ab")
    ChildRoster(home / "children.json").add(entry)
    shutil.copytree(home, copy)
    assert ChildRoster(copy / "children.json").living() == []
    assert ChildRoster(copy / "children.json").end_leftovers() == []
    shutil.copytree(home, copy, dirs_exist_ok=True)
    assert ChildRoster(copy / "children.json").take_over() == []
    assert sleeper.poll() is None
    moved = home.rename(tmp_path / "moved")
    assert ChildRoster(moved / "children.json").take_over() == [entry]
