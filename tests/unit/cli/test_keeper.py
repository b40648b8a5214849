"""The keeper of a local cluster, with programs that are daemons only in what others see."""

from __future__ import annotations

import errno
import io
import json
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from elasticd.cli import keeper, local
from elasticd.cli.daemons import LOG_FILE
from elasticd.cli.keeper import FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, Kept, RestartPauses
from elasticd.client.processes import find_daemon
from elasticd.settings.config import NodeConfig
from elasticd.settings.places import DAEMON_FILE
from elasticd.shell.assembly import identity

WAIT_SECONDS = 60.0


@pytest.fixture
def cluster(home: Path) -> Iterator[Path]:
    yield home
    local.down(home, 0.5)


def wait_for(what: str, look: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not look():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def test_a_daemon_that_dies_at_its_start_is_started_more_and_more_seldom() -> None:
    restarts, now, pauses = RestartPauses(), 0.0, []
    for _ in range(10):
        died = now
        while not restarts.may_start(now):
            now += 0.05
        pauses.append(round(now - died, 3))
        restarts.starts(now)
        now += 0.5
    assert pauses[0] == pytest.approx(FIRST_PAUSE_SECONDS, abs=0.06)
    assert pauses == sorted(pauses)
    assert pauses[-1] == pytest.approx(LONGEST_PAUSE_SECONDS, abs=0.06)


def test_one_that_lived_is_started_at_once_again() -> None:
    restarts = RestartPauses()
    for now in (0.0, 1.0, 2.0):
        while not restarts.may_start(now):
            now += 0.1
        restarts.starts(now)
    assert not restarts.may_start(100.0)
    assert restarts.may_start(100.0 + FIRST_PAUSE_SECONDS)


@pytest.mark.process
def test_what_dies_comes_back_until_down(cluster: Path, fake_program: list[str]) -> None:
    before = {row["id"]: row["pid"] for row in local.up(cluster, 2, fake_program, keep=True)}
    first = keeper.keeper_of(cluster)
    assert first is not None
    for node in ("node-0", "node-1", "node-1"):
        old = find_daemon(cluster / node)
        assert old is not None
        old.kill()
        wait_for(f"another {node}", lambda node=node, old=old: _other(cluster / node, old.pid))  # type: ignore[misc]
    after = {row["id"]: row["pid"] for row in local.up(cluster, None, fake_program)}
    assert not set(before.values()) & set(after.values())
    second = keeper.keeper_of(cluster)
    assert second is not None and second != first, "up without --keep has ended the keeper"
    assert not psutil.pid_exists(first)
    assert local.down(cluster, 0.5) == ["node-0", "node-1"]
    assert keeper.keeper_of(cluster) is None
    assert not psutil.pid_exists(second)


def _other(home: Path, pid: int) -> bool:
    daemon = find_daemon(home)
    return daemon is not None and daemon.pid != pid


@pytest.mark.process
@pytest.mark.parametrize("failure", [None, OSError(28, "No space left on device", "journal")])
def test_what_was_told_to_end_stays_away(
    cluster: Path, fake_program: list[str], failure: OSError | None
) -> None:
    """Not what ended of a failure, or crashed."""
    local.up(cluster, 2, fake_program, keep=True)
    daemon = find_daemon(cluster / "node-0")
    assert daemon is not None
    identity.remove(cluster / "node-0", failure)
    daemon.kill()
    if failure is not None:
        wait_for("another node-0", lambda: _other(cluster / "node-0", daemon.pid))
    crashed = find_daemon(cluster / "node-1")
    assert crashed is not None
    os.kill(crashed.pid, signal.SIGKILL)
    wait_for("another node-1", lambda: _other(cluster / "node-1", crashed.pid))
    assert (find_daemon(cluster / "node-0") is None) == (failure is None)


@pytest.mark.process
@pytest.mark.parametrize(("status", "again"), [(4, False), (1, True)])
def test_what_no_restart_cures_is_not_started_again(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], status: int, again: bool
) -> None:
    """A daemon that has named itself and then found its journal damaged, say."""
    home = tmp_path / "node-0"
    home.mkdir()
    named = home / DAEMON_FILE
    named.write_text('{"pid": 0}')
    kept = Kept(home, [sys.executable, "-c", f"raise SystemExit({status})"])
    kept.pauses.due = 0.0
    kept.look(0.0)
    assert kept.child is not None
    assert kept.child.wait(WAIT_SECONDS) == status
    for now in (1.0, 1000.0):
        kept.look(now)
    assert (kept.child is not None) == again and named.exists() == again
    kept.let_go()
    said = capfd.readouterr().out
    assert (f"node-0: ended with status {status}; no restart cures that" in said) != again


class Until(threading.Event):
    """Is set once a file is there."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path, self._deadline = path, time.monotonic() + WAIT_SECONDS

    def wait(self, timeout: float | None = None) -> bool:
        assert time.monotonic() < self._deadline, self._path
        return super().wait(timeout) or self._path.exists()


@pytest.mark.process
def test_what_it_says_for_years_has_an_end(tmp_path: Path) -> None:
    home = tmp_path / "node-0"
    home.mkdir()
    (home / DAEMON_FILE).write_text('{"pid": 0}')
    log, older = tmp_path / keeper.KEEPER_LOG, tmp_path / f"{keeper.KEEPER_LOG}.1"
    said = b"said\n" * (keeper.KEEPER_LOG_BYTES // 5 + 1)
    log.write_bytes(said)
    keeper.keep(tmp_path, [sys.executable, "-c", "raise SystemExit(1)"], Until(older))
    assert log.read_bytes() == b"" and older.read_bytes() == said[-keeper.KEEPER_LOG_BYTES :]


class Full(io.StringIO):
    """A log on a full disk."""

    def flush(self) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.process
def test_a_full_disk_does_not_end_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "node-0"
    home.mkdir()
    (home / DAEMON_FILE).write_text('{"pid": 0}')
    back = tmp_path / "back"
    monkeypatch.setattr(sys, "stdout", Full())
    comes = f"open({str(back)!r}, 'w')"
    keeper.keep(tmp_path, [sys.executable, "-c", comes], Until(back))
    assert back.exists()


@pytest.mark.process
def test_a_daemon_that_can_not_be_started_is_tried_again(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """More and more seldom, and its reason is said once."""
    home = tmp_path / "node-0"
    home.mkdir()
    (home / DAEMON_FILE).write_text('{"pid": 0}')
    (home / LOG_FILE).mkdir()
    kept = Kept(home, [sys.executable, "-c", ""])
    pauses = []
    for now in (0.0, 1.0, 2.0, 4.0):
        kept.look(now)
        pauses.append(kept.pauses.pause)
        kept.look(now + pauses[-1])
    assert kept.child is None
    assert pauses == [FIRST_PAUSE_SECONDS * 2**death for death in range(4)]
    assert capfd.readouterr().out.count("node-0: its daemon can't be started: ") == 1
    (home / LOG_FILE).rmdir()
    kept.look(100.0)
    kept.look(200.0)
    assert kept.child is not None
    kept.let_go()


@pytest.mark.process
def test_a_copy_commands_nothing_of_the_cluster_that_was_copied(
    cluster: Path, tmp_path: Path, fake_program: list[str]
) -> None:
    nodes = local.up(cluster, 2, fake_program, keep=True)
    copy = tmp_path / "copy"
    shutil.copytree(cluster, copy, ignore=shutil.ignore_patterns("*.sock"))
    assert (keeper.keeper_of(copy), find_daemon(copy / "node-0")) == (None, None)
    assert local.down(copy, 0.5) == []
    before = keeper.keeper_of(cluster)
    assert before is not None
    assert local.up(cluster, 2, fake_program, keep=True) == nodes
    assert not (copy / keeper.KEEPER_FILE).exists()


def test_a_home_that_is_moved_keeps_its_daemon(home: Path, tmp_path: Path) -> None:
    home.mkdir(exist_ok=True)
    me = psutil.Process()
    identity.write(home, NodeConfig(listen="127.0.0.1:7400"))
    copy = tmp_path / "copy"
    shutil.copytree(home, copy)
    assert (find_daemon(home), find_daemon(copy)) == (me, None)
    moved = home.rename(tmp_path / "moved")
    assert find_daemon(moved) == me
    told = json.loads((moved / DAEMON_FILE).read_bytes())
    del told["home"]  # an earlier version's
    (copy / DAEMON_FILE).write_text(json.dumps(told))
    assert find_daemon(copy) == me
